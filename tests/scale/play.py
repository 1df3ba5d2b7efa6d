"""One fleet on one control plane: sets the stage, goes through the phases, clears up."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from claimd.kubernetes.kube import kubeconfig as kubeconfigs
from claimd.kubernetes.kube import tls
from tests.bench.api import Object

from . import fleet, phases
from .cluster import ControlPlane, Furniture
from .program import Program
from .reader import Reader
from .stage import Row, Stage, say

SWEPT = ("alone", "storm", "rest")  # phases of the smaller fleets, for the plot

# What a driver of others may do, and what a neighbour may.
PEER_RULES: list[Object] = [
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]},
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceclaims/status"],
        "verbs": ["patch", "update"],
    },
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceclaims/driver"],
        "resourceNames": [fleet.Peer.driver],
        "verbs": ["arbitrary-node:patch", "arbitrary-node:update"],
    },
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceslices"],
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
    },
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
]
NEIGHBOUR_RULES: list[Object] = [
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update"]}
]


def play(
    plane: ControlPlane,
    furniture: Furniture,
    folder: Path,
    *,
    kind: str,
    nodes: int,
    chosen: Sequence[str],
    lengths: phases.Lengths,
    rows: list[Row],
) -> None:
    """Adds a row for each phase as it ends. Whatever goes wrong, no process is left behind."""
    furniture.install()
    furniture.others()
    host, port = furniture.host
    place = fleet.Place(
        folder=folder,
        prefix=f"s{nodes}",
        nodes=nodes,
        host=host,
        port=port,
        # Beside a machine's other work, as a test is, they would hardly ever have a turn.
        yields=plane.is_rig,
    )
    say(f"{kind}: {nodes} nodes and their accounts …")
    uids = furniture.nodes(place.prefix, 0, nodes)
    if kind == "claimd":
        furniture.accounts_of(uids, folder)
        chosen_fleet: fleet.Fleet = fleet.Ours(place)
    else:
        token = furniture.account("scale-peer", PEER_RULES)
        kubeconfig = furniture.kubeconfig_of(token, folder / "peer.kubeconfig")
        # Built now: what it takes is not the storm's.
        chosen_fleet = fleet.Peer(place, kubeconfig, fleet.built_peer())

    token = furniture.account("neighbour", NEIGHBOUR_RULES)
    stage = Stage(
        plane=plane,
        furniture=furniture,
        reader=_reader(plane),
        scrape=_scrape(plane),
        fleet=chosen_fleet,
        neighbour=Program("the neighbour", folder / "neighbour.log"),
        rows=rows,
    )
    kubeconfig = furniture.kubeconfig_of(token, folder / "neighbour.kubeconfig")
    try:
        asyncio.run(_phases(stage, kubeconfig, chosen, lengths))
    finally:
        furniture.admin.close()


async def _phases(
    stage: Stage, neighbour: Path, chosen: Sequence[str], lengths: phases.Lengths
) -> None:
    command = [sys.executable, "-m", "tests.scale.neighbour", f"--kubeconfig={neighbour}"]
    try:
        # Its requests must not wait for a turn of its own on a machine that is full of others.
        await stage.neighbour.start(command, priority=lambda: os.nice(-5))
        await stage.neighbour.first_line()
        for name, phase in phases.ALL.items():
            if name in chosen and (stage.plane.is_rig or name not in phases.RIG):
                await phase(stage, lengths)
    finally:
        await stage.fleet.stop()
        await stage.neighbour.stop()


def _reader(plane: ControlPlane) -> Reader:
    config = kubeconfigs.load(plane.kubeconfig)
    credential = asyncio.run(config.credentials.get())
    context = tls.TlsContexts(config).context(credential)
    return Reader(config.host, config.port, context, credential.token)


def _scrape(plane: ControlPlane) -> Callable[[], str] | None:
    """How the API server's metrics are read; None for one that has none."""
    if not plane.is_rig:
        return None
    reader = _reader(plane)
    return lambda: reader.get("/metrics", "text/plain").decode()
