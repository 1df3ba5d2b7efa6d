"""`claimd sim`: the API server as a program, until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import tempfile
from pathlib import Path

from claimd.common.errors import Fatal

from .server import Options, serve
from .storage.store import Change, Store

# The number of changes after which the stored objects are frozen again.
SPARED = 200


async def run(options: Options, kubeconfig: Path | None) -> None:
    """Serves until SIGINT or SIGTERM.

    Raises Fatal if it cannot listen or cannot write the kubeconfig file.
    """
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)

    async with contextlib.AsyncExitStack() as stack:
        try:
            api = await stack.enter_async_context(serve(options))
        except OSError as error:
            place, why = f"{options.host}:{options.port}", error.strerror or error
            raise Fatal(f"cannot listen on {place}: {why}") from error

        _spare_stored_objects(api.registry.store)

        # The administrator's token goes into a file of our user and never to the output, which may
        # be a log.
        if kubeconfig is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="claimd-sim-"))
            kubeconfig = Path(folder) / "kubeconfig"
        try:
            api.kubeconfig(kubeconfig)
        except OSError as error:
            raise Fatal(f"cannot write {kubeconfig}: {error.strerror or error}") from error

        # A program that waits for the first line may connect once it has read the line.
        print(f"serving like Kubernetes {options.profile} at {api.address}", flush=True)  # noqa: T201
        print(  # noqa: T201
            f"use it with: kubectl --kubeconfig {kubeconfig} get deviceclasses", flush=True
        )
        await stopping.wait()


def _spare_stored_objects(store: Store) -> None:
    """Keeps Python's garbage collector from searching the stored objects more than once.

    Stored objects are trees without cycles, so the collector finds no garbage in them. With
    thousands of objects each of its runs would block all requests for a quarter of a second.
    """
    changes = 0

    def count_change(_: Change) -> None:
        nonlocal changes
        changes += 1
        if changes % SPARED == 0:
            gc.collect()
            gc.freeze()

    gc.freeze()
    store.listeners.append(count_change)
