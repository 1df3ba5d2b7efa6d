"""Device plugins without hardware, for handing a node over from one: of the kind that vendors ship, with so many devices
of one resource, each told to its container by a variable; and Intel's own, on a tree of files.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import stat
import subprocess
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from tests.cluster.rig import build

FOLDER = Path("/var/lib/kubelet/device-plugins")
VARIABLE = "DEVICE_PLUGIN_GAVE"


def field(number: int, value: bytes | str) -> bytes:
    """One field of a message of protobuf, shorter than 128 bytes: text, or another message."""
    data = value.encode() if isinstance(value, str) else value
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


class DevicePlugin(grpc.GenericRpcHandler):
    """Registers with the node's kubelet, and serves until it is stopped."""

    def __init__(self, resource: str, count: int) -> None:
        self._resource = resource
        self._devices = [f"device-{number}" for number in range(count)]
        self._stopped: queue.Queue[None] = queue.Queue()
        self._socket = FOLDER / f"suite-{resource.replace('/', '-')}.sock"
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((self,))

    def start(self) -> None:
        self._socket.unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix://{self._socket}")
        self._server.start()
        asked = field(1, "v1beta1") + field(2, self._socket.name) + field(3, self._resource)
        with grpc.insecure_channel(f"unix://{FOLDER}/kubelet.sock") as channel:
            register = channel.unary_unary("/v1beta1.Registration/Register")
            register(asked, timeout=10, wait_for_ready=True)

    def stop(self) -> None:
        """Stops as when its pod ends: the socket is gone, and the kubelet finds the connection broken."""
        self._stopped.put(None)
        stopped: threading.Event = self._server.stop(grace=1)
        stopped.wait(10)
        self._socket.unlink(missing_ok=True)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        name = os.path.basename(str(handler_call_details.method))
        if name == "ListAndWatch":
            return grpc.unary_stream_rpc_method_handler(self._list_and_watch)
        answers = {"GetDevicePluginOptions": self._options, "Allocate": self._allocate}
        return grpc.unary_unary_rpc_method_handler(answers[name]) if name in answers else None

    def _list_and_watch(self, _request: bytes, _context: Any) -> Iterator[bytes]:
        healthy = [field(1, device) + field(2, "Healthy") for device in self._devices]
        yield b"".join(field(1, device) for device in healthy)
        self._stopped.get()

    def _options(self, _request: bytes, _context: Any) -> bytes:
        return b""

    def _allocate(self, request: bytes, _context: Any) -> bytes:
        """The same for each container: a request has one field 1 for each, with no more than 127 bytes."""
        containers, rest = 0, request
        while rest:
            containers, rest = containers + 1, rest[2 + rest[1] :]
        variable = field(1, VARIABLE) + field(2, self._resource)
        return b"".join(field(1, field(1, variable)) for _ in range(containers))


class IntelPlugin:
    """Intel's own, as a process of the node. It has each card of a fake tree, with nodes that can be opened."""

    RESOURCE = "gpu.intel.com/i915"

    def __init__(self, folder: Path, tree: Path) -> None:
        """`tree` is that of other fake GPUs of Intel's; the plugin gets its own in `folder`."""
        self.nodes = folder / "dev/dri"
        self._program = build.intel_gpu_plugin()
        self._folder = folder
        self._running: subprocess.Popen[bytes] | None = None
        shutil.copytree(tree / "sys", folder / "sys", symlinks=True)
        self.nodes.mkdir(parents=True)
        for name in os.listdir(folder / "sys/class/drm"):
            if re.fullmatch(r"(card|renderD)\d+", name):
                os.mknod(self.nodes / name, stat.S_IFCHR | 0o666, os.makedev(1, 3))

    def start(self) -> None:
        words = (str(self._program), f"-prefix={self._folder}", "-bypath=none")
        with open(self._folder / "log", "ab") as log:
            self._running = subprocess.Popen(words, stdout=log, stderr=log)

    def stop(self) -> None:
        if self._running is not None:
            self._running.terminate()
            self._running.wait(20)
            self._running = None
