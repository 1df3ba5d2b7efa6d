"""A driver's socket that a test serves, as the simulated kubelet has registered it."""

import contextlib
import tempfile
from pathlib import Path

import grpc.aio

from claimd.sim.kubelet.plugins import CHANNEL_OPTIONS, Plugin
from tests.support import sockets


@contextlib.asynccontextmanager
async def instance(add, version="v1.DRAPlugin", health_service=""):
    with tempfile.TemporaryDirectory(prefix="d-") as folder:
        endpoint = Path(folder, "dra.sock")
        async with (
            sockets.serving(endpoint, add),
            grpc.aio.insecure_channel(f"unix:{endpoint}", options=CHANNEL_OPTIONS) as channel,
        ):
            yield Plugin(
                driver="d.example.com",
                socket=Path(folder),
                endpoint=str(endpoint),
                version=version,
                health=health_service,
                channel=channel,
            )
