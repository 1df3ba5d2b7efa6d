"""`claimd sim`: the simulated API server alone."""

from __future__ import annotations

import argparse
import asyncio

from .. import errors
from ..sim.apiserver import command, kinds, server
from .exit_codes import OK


def run(arguments: argparse.Namespace) -> int:
    profile, port = arguments.profile, arguments.port
    if profile not in kinds.RELEASES:
        raise errors.UsageError(f"profile {profile!r}: expected one of {', '.join(kinds.RELEASES)}")
    if not 0 <= port <= 65535:
        raise errors.UsageError(f"port {port}: expected 0 to 65535")

    options = server.Options(
        profile=profile,
        port=port,
        tls=not arguments.http,
        db=arguments.db,
        end_namespaces=True,
    )
    asyncio.run(command.run(options, arguments.kubeconfig))
    return OK
