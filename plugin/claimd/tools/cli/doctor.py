"""`claimd doctor`: reports the faults of a node or a cluster that keep pods from their GPUs."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Iterator

from claimd.common import errors
from claimd.kubernetes.kube import auth, client
from claimd.node import config
from claimd.node.config import Config
from claimd.node.publish import sharing
from claimd_devices import scan

from ..doctor import check, examine, report, sight
from ..doctor.check import Finding, Level
from . import machine, output
from .exit_codes import ERRORS_FOUND, FAILED, OK, WARNINGS_FOUND

_EXIT_CODES = {Level.WARNING: WARNINGS_FOUND, Level.ERROR: ERRORS_FOUND}


def run(arguments: argparse.Namespace) -> int:
    """Prints the findings. The exit code depends on the worst finding: OK for notes, otherwise 3 or
    4.
    """
    with machine.open_machine(config.load(vars(arguments))) as here:
        _check_settings(here.settings)
        if not arguments.cluster:
            _check_user(here.settings)
        with _time_limit(arguments.timeout) as progress:
            findings = asyncio.run(_examine(arguments, here.settings, progress))

    if arguments.output == "json":
        print(output.json_text(report.as_data(findings)), end="")
    else:
        everything = arguments.all or arguments.output == "wide"
        print(report.as_text(findings, everything=everything), end="")
    return _EXIT_CODES.get(check.worst_level(findings), OK)


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[examine.Progress]:
    """Ends the process if the block takes longer, and names the part that has not ended.

    A read of a sick device or of a dead network file system may never return, so this does not wait
    for the block.
    """
    progress = examine.Progress()

    def give_up() -> None:
        print(
            f"claimd: doctor has a time limit of {seconds:g} s (--timeout), and has not come to its "
            f"end: it was looking at {progress.part}",
            file=sys.stderr,
            flush=True,
        )
        os._exit(FAILED)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield progress
    finally:
        timer.cancel()


async def _examine(
    arguments: argparse.Namespace, settings: Config, progress: examine.Progress
) -> list[Finding]:
    """Runs the checks of the node or of the cluster.

    If no API server is known, the checks of the node that need one say so.
    """
    file = vars(arguments).get("config") or os.environ.get("CLAIMD_CONFIG", "")

    # A fake tree belongs to no cluster: the user's kubeconfig is that of another one.
    is_tree = settings.root and not settings.kubeconfig and not sight.is_pod(os.environ)
    if is_tree and not arguments.cluster:
        nobody = "a tree is looked at, which belongs to no cluster"
        return await examine.examine_node(settings, nobody, settings_file=file, progress=progress)

    try:
        client_config = auth.as_kubectl(
            settings.kubeconfig, arguments.context, settings.service_account, os.environ
        )
    except errors.UsageError as error:
        # The user did not name a cluster, so the checks that need no cluster are still worth a run.
        if settings.kubeconfig or arguments.context or arguments.cluster:
            raise
        return await examine.examine_node(
            settings, str(error), settings_file=file, progress=progress
        )

    server = client.Client(client_config, agent="claimd-doctor")
    try:
        if arguments.cluster:
            return await examine.examine_cluster(settings, server, progress=progress)
        return await examine.examine_node(settings, server, settings_file=file, progress=progress)
    finally:
        await server.close()


def _check_settings(settings: Config) -> None:
    try:
        scan.check_rules(settings.rules)
        sharing.parse(settings.share)
    except ValueError as error:
        raise errors.UsageError(str(error)) from error


def _check_user(settings: Config) -> None:
    # Only root can read the kubelet's folders. To any other user they would look broken.
    folder = settings.kubelet_dir / "plugins_registry"
    if os.geteuid() and folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
        raise errors.Fatal(f"{folder} is root's, as is most of what is looked at: run this as root")
