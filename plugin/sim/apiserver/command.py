"""`claimd sim`: the API server as a program, until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

from ...errors import Fatal
from .server import Api, Options, serve


async def run(options: Options, kubeconfig: Path | None) -> None:
    """Serves until SIGINT or SIGTERM. Fatal if it cannot listen, or write the kubeconfig file."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)

    async with contextlib.AsyncExitStack() as stack:
        try:
            api = await stack.enter_async_context(serve(options))
        except OSError as error:
            place, why = f"{options.host}:{options.port}", error.strerror or error
            raise Fatal(f"cannot listen on {place}: {why}") from error

        # Whoever waits for the first line may connect once it is there.
        flags = _kubectl_flags(api, kubeconfig)
        print(f"serving like Kubernetes {options.profile} at {api.address}", flush=True)  # noqa: T201
        print(f"use it with: kubectl {flags} get deviceclasses", flush=True)  # noqa: T201
        await stopping.wait()


def _kubectl_flags(api: Api, kubeconfig: Path | None) -> str:
    """How kubectl finds the server: by the file, which is written, or by its address."""
    if not kubeconfig:
        return f"--server {api.url}"
    try:
        return f"--kubeconfig {api.kubeconfig(kubeconfig)}"
    except OSError as error:
        raise Fatal(f"cannot write {kubeconfig}: {error.strerror or error}") from error
