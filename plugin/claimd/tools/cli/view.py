"""`claimd view`: serves a page that shows the cluster's GPUs live, or prints a table of them."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import webbrowser
from contextlib import AbstractAsyncContextManager

from claimd.common import errors
from claimd.node import config

from ..view import follow, prometheus, rows
from ..view.board import Board
from ..view.server import Page, serve_cluster
from . import output
from .exit_codes import OK


def run(arguments: argparse.Namespace) -> int:
    """Serves the page until a signal ends it, or prints the devices once."""
    if not 0 <= arguments.port <= 65535:
        raise errors.UsageError(f"port {arguments.port}: expected 0 to 65535")
    if arguments.prometheus and (arguments.file or arguments.output != "page"):
        raise errors.UsageError("--prometheus is for the page of a cluster, without -f and -o")
    try:
        asyncio.run(_view_files(arguments) if arguments.file else _view_cluster(arguments))
    except OSError as error:
        why = error.strerror or error
        raise errors.Fatal(f"cannot serve the page at port {arguments.port}: {why}") from error
    return OK


async def _view_files(arguments: argparse.Namespace) -> None:
    board = Board()
    picture = follow.from_files(board, arguments.file)
    if arguments.output != "page":
        _print(picture, arguments.output)
        return
    await _serve_until_signal(arguments, Page(board, picture).serve(arguments.port))


async def _view_cluster(arguments: argparse.Namespace) -> None:
    # Files are read without a client.
    from claimd.kubernetes.kube import auth, client
    from claimd.kubernetes.kube import errors as kube_errors

    recorded = prometheus.Prometheus(arguments.prometheus) if arguments.prometheus else None
    settings = config.load(vars(arguments))
    client_config = auth.as_kubectl(
        settings.kubeconfig, arguments.context, settings.service_account, os.environ
    )
    api = client.Client(client_config, agent="claimd-view")
    try:
        if arguments.output == "page":
            await _serve_until_signal(arguments, serve_cluster(api, arguments.port, recorded))
            return
        async with follow.from_cluster(Board(), api) as picture:
            _print(picture, arguments.output)
    except kube_errors.ApiError as error:
        raise errors.Fatal(str(error)) from error
    finally:
        await api.close()


async def _serve_until_signal(
    arguments: argparse.Namespace, serving: AbstractAsyncContextManager[str]
) -> None:
    # A signal ends the server in order, with its connections.
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
    nodes = []
    for name in sorted(picture.world.rows()):
        # A row without a node and without slices is empty.
        row = rows.row(picture.world, name)
        if row is not None:
            nodes.append(row)
    if form == "json":
        output.print_document(nodes, "json")
        return

    table = [["NODE", "DEVICE", "MODEL", "MEMORY", "USE", "BY", "TROUBLE"]]
    for row in nodes:
        for device in row["devices"]:
            table.append([output.cell(text) for text in (row["name"], *_texts(device))])
    if len(table) == 1:
        print("No driver has published a device.")
    else:
        output.print_rows(table)


def _texts(device: rows.Row) -> tuple[str, ...]:
    """Returns the device's texts in the order of the columns."""
    # Admin access does not take the device from others.
    holders = []
    for holder in device.get("by", ()):
        if not holder.get("admin"):
            pods = ", ".join(holder["pods"]) or "no pod"
            holders.append(f"{pods} ({holder['claim']})")

    trouble = []
    for taint in device.get("why", ()):
        trouble.append(f"{taint['text']}:{taint['effect']}")
    return (
        device["name"],
        device["model"],
        device.get("size", ""),
        device["use"],
        "; ".join(holders),
        "; ".join(trouble),
    )
