"""`claimd view`: a page of the cluster's GPUs as they are now."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import webbrowser
from contextlib import AbstractAsyncContextManager

from .. import config, errors
from ..view import follow
from ..view.board import Board
from ..view.server import Page, serve_cluster
from .exit_codes import OK


def run(arguments: argparse.Namespace) -> int:
    """Until a signal ends it."""
    if not 0 <= arguments.port <= 65535:
        raise errors.UsageError(f"port {arguments.port}: expected 0 to 65535")
    try:
        asyncio.run(_of_files(arguments) if arguments.file else _of_cluster(arguments))
    except OSError as error:
        why = error.strerror or error
        raise errors.Fatal(f"cannot serve the page at port {arguments.port}: {why}") from error
    return OK


async def _of_files(arguments: argparse.Namespace) -> None:
    board = Board()
    picture = follow.from_files(board, arguments.file)
    await _until_a_signal(arguments, Page(board, picture).served(arguments.port))


async def _of_cluster(arguments: argparse.Namespace) -> None:
    from ..kube import auth, client  # files are read without them
    from ..kube import errors as kube_errors

    settings = config.load(vars(arguments))
    client_config = auth.as_kubectl(
        settings.kubeconfig, arguments.context, settings.service_account, os.environ
    )
    api = client.Client(client_config, agent="claimd-view")
    try:
        await _until_a_signal(arguments, serve_cluster(api, arguments.port))
    except kube_errors.ApiError as error:
        raise errors.Fatal(str(error)) from error
    finally:
        await api.close()


async def _until_a_signal(
    arguments: argparse.Namespace, serving: AbstractAsyncContextManager[str]
) -> None:
    ending = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)

    async with serving as address:
        print(address)
        print("Open it in a browser; Ctrl-C ends it.", flush=True)
        if arguments.open:
            webbrowser.open(address)
        await ending.wait()
