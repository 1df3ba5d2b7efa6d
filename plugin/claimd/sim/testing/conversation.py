"""A cluster that a test in another process controls: one line of JSON per request and answer.

The first line configures the cluster, and is answered when it is up. The end of the input ends
the cluster, even if the test was killed.

    {"id": 1, "do": "wait", "with": {"what": "pod/p", …}}    request
    {"id": 1, "gives": …} or {"id": 1, "refused": "why"}     answer
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO

from claimd.common import errors

from ..apiserver import kinds, server
from ..cluster import Machine, Programs, check_release, find_programs, up
from ..demo.views import Views
from . import account, words
from .operations import Operations, Refused, wait_until_ready

_LONGEST_LINE = 64 << 20  # bytes


def main() -> None:
    """Runs until the standard input ends."""
    # Only answers go to the standard output; anything printed goes to standard error.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    # The end of the input ends this process; Ctrl-C is for the test.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked = json.loads(sys.stdin.buffer.readline())
    folder = Path(asked["folder"])
    logging.basicConfig(
        filename=folder / account.LOG, level=logging.INFO, format="%(asctime)s %(name)s %(message)s"
    )
    try:
        asyncio.run(_converse(asked, folder, answers))
    finally:
        # The test process, which created the folder, may have been killed.
        shutil.rmtree(folder, ignore_errors=True)


async def _converse(asked: dict[str, Any], folder: Path, answers: BinaryIO) -> None:
    async with contextlib.AsyncExitStack() as stack:
        try:
            machines, options, programs = _parse_options(asked)
            running = await stack.enter_async_context(
                up(machines, folder, options=options, programs=programs)
            )
        except (errors.UsageError, errors.Fatal) as error:
            _send(answers, {"id": 0, "refused": str(error)})
            return

        group = await stack.enter_async_context(asyncio.TaskGroup())
        views = Views(running, group)
        try:
            await wait_until_ready(running)
        except Refused as refusal:
            _send(answers, {"id": 0, "refused": str(refusal)})
        else:
            _send(answers, {"id": 0, "gives": {"address": running.api.address}})
            await _answer_all(answers, Operations(running, views))
        finally:
            views.close()


def _parse_options(asked: dict[str, Any]) -> tuple[list[Machine], server.Options, Programs]:
    profile = asked["profile"] or kinds.NEWEST
    check_release(profile)
    machines = [words.machine_of(name, given) for name, given in asked["nodes"].items()]
    programs = find_programs(
        asked.get("scheduler", ""),
        asked.get("controllers", ""),
        asked.get("binding_timeout"),
    )
    return machines, server.Options(profile=profile, tls=True), programs


async def _answer_all(answers: BinaryIO, operations: Operations) -> None:
    async for line in _lines():
        asked = json.loads(line)
        try:
            given = await operations.answer(asked["do"], asked["with"])
        except Refused as refusal:
            _send(answers, {"id": asked["id"], "refused": str(refusal)})
        else:
            _send(answers, {"id": asked["id"], "gives": given})


async def _lines() -> AsyncIterator[bytes]:
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        yield line


def _send(answers: BinaryIO, answer: dict[str, Any]) -> None:
    """Writes an answer; ignores a test that is gone, because the input then ends as well."""
    try:
        answers.write(json.dumps(answer).encode() + b"\n")
    except BrokenPipeError:
        logging.getLogger(__name__).info("nobody waits for the answer")


if __name__ == "__main__":
    main()
