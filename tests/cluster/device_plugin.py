"""Device plugins without hardware, for tests that hand a node over from a device plugin to claimd.

`DevicePlugin` works like those of the vendors: it has a number of devices of one resource, and sets
a variable in containers that get one. `IntelPlugin` is Intel's program on a tree of files.
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
    """Encodes a field of a protobuf message: a text or a message of less than 128 bytes."""
    data = value.encode() if isinstance(value, str) else value
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


class DevicePlugin(grpc.GenericRpcHandler):
    """A device plugin that registers with the node's kubelet and serves until it is stopped."""

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
        """Removes the socket and breaks the kubelet's connection, as when the plugin's pod ends."""
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
        """Answers with the same variable for each container of the request.

        A request has one field 1 per container, which has less than 128 bytes.
        """
        containers, rest = 0, request
        while rest:
            containers, rest = containers + 1, rest[2 + rest[1] :]
        variable = field(1, VARIABLE) + field(2, self._resource)
        return b"".join(field(1, field(1, variable)) for _ in range(containers))


class IntelPlugin:
    """Intel's device plugin as a process of the node.

    It finds each card of a fake tree, whose device nodes can be opened.
    """

    RESOURCE = "gpu.intel.com/i915"

    def __init__(self, folder: Path, tree: Path) -> None:
        """Makes the plugin's tree in `folder`, as a copy of `tree`, which has fake GPUs of Intel."""
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
