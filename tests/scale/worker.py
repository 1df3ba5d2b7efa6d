"""Many plugins in one process, each with a node of its own: what `tests.scale` starts a few of.

Each is the whole program (`claimd.node.app`) with its own folders, sockets, connections and token; what
they share is the interpreter and a fake tree. The kubelet's registration is played here. On the
standard output there is a JSON object a line, on the standard input a command a line; what they are
is in `fleet`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from claimd.common import log, names
from claimd.kubernetes.kubelet_api.pluginregistration.v1 import api_pb2, api_pb2_grpc
from claimd.node import app, config, event_loop

from . import layout

LOOK = 0.1  # seconds between two looks for a fact
TELL = 0.5  # seconds between two lines about the same thing
CALL = 60.0  # seconds for a call to a plugin's registration
# What does not concern the API server is asked for as seldom as the settings allow: of hundreds of
# plugins on a few cores it would be most of the work.
SELDOM = 3600.0


@dataclass(kw_only=True)
class Plugin:
    """One life of the plugin of a node."""

    app: app.App
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def tainted(self) -> int:
        """Devices with a taint, as the API server has told of them."""
        slices = self.app.resources.slices.objects.values()
        devices = [device for slice_ in slices for device in slice_["spec"].get("devices") or ()]
        return sum(1 for device in devices if device.get("taints"))

    def stands(self) -> bool:
        """Whether what it wants stands, and its own copy shows it."""
        slices = self.app.resources.slices
        return self.app.publisher.published.is_set() and bool(slices.objects)


@dataclass(kw_only=True)
class Node:
    """A node with its plugin; during an update with two."""

    name: str
    settings: config.Config
    plugin: Plugin | None = None
    lives: int = 0

    def start(self) -> Plugin:
        """A new life beside the present one, if there is one."""
        self.lives += 1
        settings = config.replace(self.settings, pod_uid=f"{self.lives:08x}")
        plugin = Plugin(app=app.build(settings))
        plugin.task = asyncio.create_task(plugin.app.run_until(plugin.stop))
        return plugin

    async def register(self, plugin: Plugin) -> None:
        """As the kubelet does it when it sees the socket."""
        settings = plugin.app.config
        socket = names.registration_socket(
            settings.kubelet_dir, settings.driver_name, settings.pod_uid
        )
        while not socket.exists():
            if plugin.task is not None and plugin.task.done():
                await plugin.task
            await asyncio.sleep(LOOK)
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            stub = api_pb2_grpc.RegistrationStub(channel)
            await stub.GetInfo(api_pb2.InfoRequest(), timeout=CALL, wait_for_ready=True)
            status = api_pb2.RegistrationStatus(plugin_registered=True)
            await stub.NotifyRegistrationStatus(status, timeout=CALL)


class Worker:
    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._counting: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Starts all at once, then obeys, to the end of the standard input."""
        await asyncio.gather(*(self._begin(node) for node in self._nodes))
        tell("started", n=len(self._nodes))

        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            word, *rest = line.decode().split()
            if word == "stop":
                break
            elif word == "expect":
                self._count("tainted" if rest[0] != "0" else "untainted", _has_taints(int(rest[0])))
            elif word == "restart":
                await self._restart(int(rest[0]))
            else:
                tell("error", text=f"no such command: {word}")
        await asyncio.gather(*(_end(node) for node in self._nodes))

    async def _begin(self, node: Node) -> None:
        if not self._counting:
            self._count("published", Plugin.stands)
        node.plugin = node.start()
        await node.register(node.plugin)

    def _count(self, what: str, fact: Callable[[Plugin], bool]) -> None:
        """Tells how many nodes there are of which the fact is so, until it is of all."""
        if self._counting is not None:
            self._counting.cancel()
        self._counting = asyncio.create_task(self._counted(what, fact))

    async def _counted(self, what: str, fact: Callable[[Plugin], bool]) -> None:
        waiting = list(self._nodes)
        told, told_at = -1, 0.0
        while True:
            waiting = [node for node in waiting if node.plugin is None or not fact(node.plugin)]
            number = len(self._nodes) - len(waiting)
            if number != told and (not waiting or time.monotonic() - told_at >= TELL):
                tell(what, n=number)
                told, told_at = number, time.monotonic()
            if not waiting:
                return
            await asyncio.sleep(LOOK)

    async def _restart(self, at_once: int) -> None:
        """As the DaemonSet updates: the new one is there before the old one leaves."""
        done = 0
        waiting: Iterator[Node] = iter(self._nodes)

        async def one_by_one() -> None:
            nonlocal done
            for node in waiting:
                old, node.plugin = node.plugin, node.start()
                await node.register(node.plugin)
                while not node.plugin.stands():
                    await asyncio.sleep(LOOK)
                if old is not None:
                    await _stopped(old)
                done += 1
                tell("restarted", n=done)

        await asyncio.gather(*(one_by_one() for _ in range(at_once)))


def _has_taints(number: int) -> Callable[[Plugin], bool]:
    return lambda plugin: plugin.tainted() == number


async def _end(node: Node) -> None:
    if node.plugin is not None:
        await _stopped(node.plugin)


async def _stopped(plugin: Plugin) -> None:
    plugin.stop.set()
    if plugin.task is not None:
        await plugin.task


def tell(event: str, **more: object) -> None:
    print(json.dumps({"event": event, "t": time.time(), **more}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.scale.worker", description=__doc__)
    parser.add_argument("--prefix", required=True, help="of the nodes' names")
    parser.add_argument("--first", type=int, required=True, help="number of the first node")
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="of all nodes")
    parser.add_argument("--tree", required=True, help="a fake tree, of all nodes")
    parser.add_argument("--driver", required=True)
    asked = parser.parse_args()
    log.set_up("warning", "json")
    logging.getLogger("asyncio").setLevel("ERROR")
    with asyncio.Runner(loop_factory=event_loop.Loop) as runner:
        runner.run(Worker(list(_nodes(asked))).run())


def _nodes(asked: argparse.Namespace) -> Iterator[Node]:
    for number in range(asked.first, asked.first + asked.nodes):
        name = layout.node_name(asked.prefix, number)
        folder = asked.folder / name
        settings = config.Config(
            node_name=name,
            driver_name=asked.driver,
            kubelet_dir=folder,
            cdi_dir=folder / "cdi",
            root=asked.tree,
            service_account=folder / layout.ACCOUNT,
            rescan=SELDOM,
            health_interval=SELDOM,
            garbage_grace=0.0,
        )
        yield Node(name=name, settings=settings)


if __name__ == "__main__":
    main()
