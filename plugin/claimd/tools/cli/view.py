"""`claimd view`: a page of the cluster's GPUs as they are now, or a table of them."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import webbrowser
from contextlib import AbstractAsyncContextManager

from claimd.common import errors, plain_text
from claimd.node import config

from ..view import follow, rows
from ..view.board import Board
from ..view.server import Page, serve_cluster
from . import output
from .exit_codes import OK


def run(arguments: argparse.Namespace) -> int:
    """A page is there until a signal ends it."""
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
    if arguments.output != "page":
        _print(picture, arguments.output)
        return
    await _until_a_signal(arguments, Page(board, picture).served(arguments.port))


async def _of_cluster(arguments: argparse.Namespace) -> None:
    from claimd.kubernetes.kube import auth, client  # files are read without them
    from claimd.kubernetes.kube import errors as kube_errors

    settings = config.load(vars(arguments))
    client_config = auth.as_kubectl(
        settings.kubeconfig, arguments.context, settings.service_account, os.environ
    )
    api = client.Client(client_config, agent="claimd-view")
    try:
        if arguments.output == "page":
            await _until_a_signal(arguments, serve_cluster(api, arguments.port))
            return
        async with follow.from_cluster(Board(), api) as picture:
            _print(picture, arguments.output)
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


# ---------------------------------------------------------------- once, as text


def _print(picture: follow.Picture, form: str) -> None:
    found = [rows.row(picture.world, name) for name in sorted(picture.world.rows())]
    nodes = [row for row in found if row is not None]
    if form == "json":
        output.document(nodes, "json")
        return

    table = [["NODE", "DEVICE", "MODEL", "MEMORY", "USE", "BY", "TROUBLE"]]
    for row in nodes:
        for device in row["devices"]:
            table.append([row["name"], *(output.cell(text) for text in _cells(device))])
    if len(table) == 1:
        print("No driver has published a device.")
    else:
        output.rows(table)


def _cells(device: rows.Row) -> list[str]:
    """As in the table. What strangers wrote is told on one line, whatever is in it."""
    holders = [
        f"{', '.join(holder['pods']) or 'no pod'} ({holder['claim']})"
        for holder in device.get("by", ())
        if not holder.get("admin")
    ]
    trouble = [f"{taint['text']}:{taint['effect']}" for taint in device.get("why", ())]
    texts = (
        device["name"],
        device["model"],
        device.get("memory", ""),
        device["use"],
        "; ".join(holders),
        "; ".join(trouble),
    )
    return [plain_text.one_line(text) for text in texts]
