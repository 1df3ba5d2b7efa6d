"""`claimd sim`: serves the simulated API server, or runs a command in a simulated cluster."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses

from claimd.common import errors
from claimd.sim.apiserver import command, kinds, server

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
    if arguments.words is not None:
        return _run_command(arguments, options)

    # Only a whole cluster has these, and not an API server alone.
    for flag in ("node", "scheduler", "controllers", "binding_timeout"):
        if getattr(arguments, flag):
            raise errors.UsageError(
                f"--{flag.replace('_', '-')} is for `claimd sim --node NAME -- COMMAND`; a cluster that stays up is "
                "`claimd demo --serve`"
            )
    asyncio.run(command.run(options, arguments.kubeconfig))
    return OK


def _run_command(arguments: argparse.Namespace, options: server.Options) -> int:
    # A server alone needs none of these.
    from claimd.sim import cluster
    from claimd.sim.testing import command as around
    from claimd.sim.testing import words

    if not arguments.words:
        raise errors.UsageError("after --: expected a COMMAND, such as `-- go test ./...`")
    machines = [words.machine(text) for text in arguments.node]
    names = [machine.name for machine in machines]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise errors.UsageError(f"--node: {', '.join(twice)} is there twice")

    programs = cluster.find_programs(
        arguments.scheduler, arguments.controllers, arguments.binding_timeout
    )
    if programs != cluster.OURS and not machines:
        raise errors.UsageError(
            "--scheduler, --controllers and --binding-timeout are for a cluster: "
            "expected --node NAME with them"
        )
    if machines:
        cluster.check_release(options.profile)
        # The cluster's own controller ends the namespaces.
        options = dataclasses.replace(options, end_namespaces=False)
    return around.run(
        around.CommandOptions(
            words=arguments.words,
            server=options,
            machines=machines,
            kubeconfig=arguments.kubeconfig,
            programs=programs,
        )
    )
