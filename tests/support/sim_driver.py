"""A driver's socket that a test serves, as the simulated kubelet has registered it."""

import contextlib
import tempfile
from pathlib import Path

import grpc.aio

from plugin.sim.kubelet.plugins import OPTIONS, Instance


@contextlib.asynccontextmanager
async def instance(add, version="v1.DRAPlugin", health_service=""):
    with tempfile.TemporaryDirectory(prefix="d-") as folder:
        server = grpc.aio.server()
        add(server)
        server.add_insecure_port(f"unix:{folder}/dra.sock")
        await server.start()
        channel = grpc.aio.insecure_channel(f"unix:{folder}/dra.sock", options=OPTIONS)
        try:
            yield Instance(
                driver="d.example.com",
                socket=Path(folder),
                endpoint=f"{folder}/dra.sock",
                version=version,
                health=health_service,
                channel=channel,
            )
        finally:
            await channel.close()
            await server.stop(0)
