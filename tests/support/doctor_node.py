"""A node on which everything is well, made of real files and sockets, for tests to break."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from claimd.common import names, probe
from claimd.node import config
from claimd.node.endpoint import server as endpoint
from claimd_devices import fake, scan
from tests.support import driver_layouts, podresources
from tests.support.podresources import PodResources

NODE, DRIVER = "node-1", "gpu.claimd.dev"
# The sockets of its claimd are ours.
PROCESS = os.getpid()

CONTAINERD = """\
version = 3
[plugins."io.containerd.cri.v1.runtime"]
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "{cdi}"]
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  SystemdCgroup = true
"""


class Node:
    """`settings` are those that its claimd runs with; a test may replace them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kubelet_dir = root / "var/lib/kubelet"
        self.cdi_dir = root / "run/cdi"
        self.plugin = names.plugin_folder(self.kubelet_dir, DRIVER)
        self.registry = self.kubelet_dir / "plugins_registry"
        self.settings = config.Config(
            root=str(root),
            node_name=NODE,
            kubelet_dir=self.kubelet_dir,
            cdi_dir=self.cdi_dir,
            require_libraries="true",
            endpoint=f"unix:{root}/e.sock",
        )
        self.unready = ""  # what /readyz says
        self.kubelet = PodResources()
        self.sockets: dict[str, socket.socket] = {}

    def set(self, **changes: Any) -> None:
        self.settings = dataclasses.replace(self.settings, **changes)

    def write(self, path: str, text: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def containerd(self, text: str) -> None:
        self.write("etc/containerd/config.toml", text)

    def listen(self, path: Path) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen()
        self.sockets[path.name] = listener

    def link_devices(self) -> None:
        """As udev makes the links of /dev/char."""
        folder = self.root / "dev/char"
        folder.mkdir()
        for gpu in scan.scan(self.settings.roots, self.settings.rules).gpus:
            for node in gpu.nodes:
                link = folder / f"{node.major}:{node.minor}"
                if not link.is_symlink():
                    link.symlink_to(f"..{node.path.removeprefix('/dev')}")

    def runs_claimd(self, *, files: int = 20, limit: int = 1024, context: str = "") -> None:
        """The process of a `claimd run`, as /proc shows it."""
        folder = self.root / f"proc/{PROCESS}"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "fd").mkdir(parents=True)
        (folder / "attr").mkdir()
        for number in range(files):
            (folder / "fd" / str(number)).touch()
        (folder / "limits").write_text(f"Max open files            {limit}     {limit}     files\n")
        (folder / "attr/current").write_text(context)

    def enforce_selinux(self, context: str) -> None:
        self.write("sys/fs/selinux/enforce", "1")
        self.write("var/log/audit/audit.log", "type=SYSCALL msg=audit(1): arch=c000003e\n")
        self.runs_claimd(context=context)


def furnish(root: Path) -> Node:
    """Files alone: GPUs of two vendors, their libraries, the runtime's configuration, a kubelet's
    folder.
    """
    fake.write(root, fake.parse(["nvidia:h100=2", "amd:mi300x", "bmc:aspeed"]))
    driver_layouts.write(root, "debian")
    shutil.rmtree(root / "usr/bin")  # its links lead to the host, out of what a fault may change
    node = Node(root)
    for folder in (node.plugin, node.registry, node.kubelet_dir / "pod-resources", node.cdi_dir):
        folder.mkdir(parents=True)
    node.containerd(CONTAINERD.format(cdi=node.cdi_dir))
    node.link_devices()
    node.runs_claimd()
    return node


@contextlib.contextmanager
def _listening(node: Node) -> Iterator[None]:
    node.listen(node.plugin / "dra.sock")
    node.listen(node.registry / f"{DRIVER}-reg.sock")
    try:
        yield
    finally:
        for listener in node.sockets.values():
            listener.close()


@contextlib.asynccontextmanager
async def serving(root: Path) -> AsyncIterator[Node]:
    """The node with its kubelet and its claimd, as far as others see them."""
    node = furnish(root)
    served = endpoint.Endpoint(f"unix:{root}/e.sock", lambda: node.unready)
    async with podresources.serve(names.pod_resources_socket(node.kubelet_dir)) as kubelet:
        node.kubelet = kubelet
        with _listening(node):
            running = asyncio.create_task(served.run())
            async with asyncio.timeout(30):
                while not (await asyncio.to_thread(probe.ask, f"unix:{root}/e.sock", "/livez"))[0]:
                    pass
            yield node
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def silence(node: Node, name: str) -> None:
    """The file of a socket stays, and nobody listens any more."""
    node.sockets.pop(name).close()
    assert os.path.exists(node.plugin / name) or os.path.exists(node.registry / name)
