"""`claimd doctor`: what stands between a node, or a cluster, and GPUs that work."""

from __future__ import annotations

import argparse
import asyncio
import os

from claimd.common import errors
from claimd.kubernetes.kube import auth, client
from claimd.node import config
from claimd.node.config import Config
from claimd.node.publish import sharing
from claimd_devices import scan

from ..doctor import check, examine, report, sight
from ..doctor.check import Finding, Level
from . import machine, output
from .exit_codes import OK

# Beside 0, by the worst that was found. 1 and 2 are errors, as everywhere.
WARNING = 3
ERROR = 4
_EXIT_CODES = {Level.WARNING: WARNING, Level.ERROR: ERROR}


def run(arguments: argparse.Namespace) -> int:
    """Tell what is not well. 0: nothing, notes aside; 3: warnings; 4: errors."""
    with machine.opened(config.load(vars(arguments))) as here:
        _check(here.settings, of_node=not arguments.cluster)
        findings = asyncio.run(_findings(arguments, here.settings))

    if arguments.output == "json":
        print(output.text_of(report.as_data(findings)), end="")
    else:
        everything = arguments.all or arguments.output == "wide"
        print(report.as_text(findings, everything=everything), end="")
    return _EXIT_CODES.get(check.worst(findings), OK)


async def _findings(arguments: argparse.Namespace, settings: Config) -> list[Finding]:
    """Of the node; what no API server can be asked about is not looked at."""
    file = vars(arguments).get("config") or os.environ.get("CLAIMD_CONFIG", "")
    is_tree = settings.root and not settings.kubeconfig and not sight.is_pod(os.environ)
    if is_tree and not arguments.cluster:
        nobody = "a tree is looked at, which belongs to no cluster"
        return await examine.node(settings, nobody, settings_file=file)
    try:
        client_config = auth.as_kubectl(
            settings.kubeconfig, arguments.context, settings.service_account, os.environ
        )
    except errors.UsageError as error:
        if settings.kubeconfig or arguments.context or arguments.cluster:
            raise
        return await examine.node(settings, str(error), settings_file=file)

    server = client.Client(client_config, agent="claimd-doctor")
    try:
        if arguments.cluster:
            return await examine.whole_cluster(settings, server)
        return await examine.node(settings, server, settings_file=file)
    finally:
        await server.close()


def _check(settings: Config, *, of_node: bool) -> None:
    try:
        scan.check_rules(settings.rules)
        sharing.parse(settings.share)
    except ValueError as error:
        raise errors.UsageError(str(error)) from error

    # What root alone may see would look broken to others.
    folder = settings.kubelet_dir / "plugins_registry"
    if of_node and os.geteuid() and folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
        raise errors.Fatal(f"{folder} is root's, as is most of what is looked at: run this as root")
