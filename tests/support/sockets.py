"""A gRPC server on a unix socket, for as long as a test wants it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc.aio


@contextlib.asynccontextmanager
async def serving(path: Path, add: Callable[[grpc.aio.Server], object]) -> AsyncIterator[None]:
    """`add` adds the services. Nothing is left at the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    server = grpc.aio.server()
    add(server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(0)
        path.unlink(missing_ok=True)
