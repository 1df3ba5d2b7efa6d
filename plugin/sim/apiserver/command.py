"""`claimd sim`: the API server as a program, until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

from ...errors import Fatal
from .server import Options, serve


async def run(options: Options, kubeconfig: Path | None) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with contextlib.AsyncExitStack() as stack:
        try:
            api = await stack.enter_async_context(serve(options))
        except OSError as error:
            raise Fatal(
                f"cannot listen on {options.host}:{options.port}: {error.strerror or error}"
            ) from error
        use = f"--server {api.url}"
        if kubeconfig:
            try:
                use = f"--kubeconfig {api.kubeconfig(kubeconfig)}"
            except OSError as error:
                raise Fatal(f"cannot write {kubeconfig}: {error.strerror or error}") from error
        print(f"serving like Kubernetes {options.profile} at {api.address}", flush=True)  # noqa: T201 - for whoever waits
        print(f"use it with: kubectl {use} get deviceclasses", flush=True)  # noqa: T201
        await stopping.wait()
