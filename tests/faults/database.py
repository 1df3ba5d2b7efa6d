"""A `claimd sim --db` that is killed again and again while clients write.

After each kill a new server of the same file has to have every write that was answered, as it was
answered; a write that was under way is there whole or not at all; no version is given twice; and
who watches from one that the new server knows nothing of is told to begin anew.

    python -m tests.faults.database --kills 2000
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from claimd.kubernetes.kube import auth, client, errors
from claimd.tools import cli
from tests.support import progress

from .world import Broken

MAPS = "/api/v1/namespaces/default/configmaps"
WRITERS = 6  # clients that write at the same time, each to names of its own
NAMES = 4  # of each writer
MOST = 20  # writes that are answered before a kill
A_MOMENT = 0.01  # seconds that may pass after them
LIVES = 50  # kills of one file; then another is begun
SHOW = 100  # kills between two lines of progress

PATIENCE = 60.0  # seconds

# Most of a start is the import of what servers consist of: they are forked from one that has it.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["claimd.tools.cli.sim", "claimd.sim.apiserver.storage.disk"])

State = tuple[int, str] | None  # what it says, and its version; None: it is not there


@dataclass
class Known:
    """What is known of one object: how it was answered last, and what may have become of it."""

    answered: State = None
    under_way: list[int | None] = field(default_factory=list)  # what an unanswered write said

    def allows(self, state: State) -> bool:
        if state == self.answered:
            return True
        return (state[0] if state else None) in self.under_way


@dataclass
class File:
    """One file with everything that its servers have said."""

    path: Path
    kubeconfig: Path
    dice: random.Random
    objects: dict[str, Known] = field(default_factory=dict)
    newest: int = 0  # the version that anybody has heard of
    newest_written: int = 0  # the same of an object, not of a list
    counts: Counter[str] = field(default_factory=Counter)
    number: int = 0
    written: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    def wrote(self) -> None:
        self.counts["writes"] += 1
        self.written.release()

    def heard(self, metadata: dict[str, Any]) -> str:
        version = str(metadata["resourceVersion"])
        self.newest_written = max(self.newest_written, int(version))
        self.newest = max(self.newest, int(version))
        return version


def serve(path: Path, kubeconfig: Path, said: Connection) -> None:
    """`claimd sim --db`, in a process of its own; what it prints is said."""
    os.dup2(said.fileno(), sys.stdout.fileno())
    raise SystemExit(cli.main(["sim", "--db", str(path), "--kubeconfig", str(kubeconfig)]))


async def killed_once(file: File) -> None:
    """A server starts, is looked at, written to, and killed. Broken for what it does not keep."""
    heard, said = _context.Pipe(duplex=False)
    server = _context.Process(target=serve, args=(file.path, file.kubeconfig, said))
    server.start()
    said.close()
    try:
        if not await asyncio.to_thread(heard.poll, PATIENCE):
            raise Broken("the server did not start")
        config = auth.client_config(str(file.kubeconfig), file.path.parent)
        api = client.Client(config, agent="t", limit=WRITERS + 1)
        try:
            await look(file, api)
            await write_until_killed(file, api, server)
        finally:
            await api.close()
    finally:
        server.kill()
        server.join()
        heard.close()


async def look(file: File, api: client.Client) -> None:
    """Everything that was answered is there, and no version that was heard of comes again."""
    listed = json.loads(await api.request("GET", MAPS))
    version = int(listed["metadata"]["resourceVersion"])
    # A server that was killed before it wrote anything leaves the version as it was.
    if version < file.newest or version == file.newest_written:
        raise Broken(f"the version went back from {file.newest} to {version}")

    states: dict[str, State] = {}
    for item in listed["items"]:
        metadata = item["metadata"]
        states[metadata["name"]] = (int(item["data"]["n"]), metadata["resourceVersion"])
        if int(metadata["resourceVersion"]) > version:
            raise Broken(f"{metadata['name']} is of a version after that of its list: {metadata}")

    for name in states.keys() - file.objects.keys():
        raise Broken(f"{name} is there, and nobody wrote it")
    for name, known in file.objects.items():
        if not known.allows(states.get(name)):
            expected = f"{known.answered}, or one of {known.under_way}"
            raise Broken(f"{name} is {states.get(name)}; expected {expected}")
        file.counts["objects looked at"] += 1
        if states.get(name) != known.answered:
            file.counts["unanswered writes that are there"] += 1
        known.answered, known.under_way = states.get(name), []

    if 0 < file.newest < version:
        await expect_gone(file, api)
    file.newest = max(file.newest, version)


async def expect_gone(file: File, api: client.Client) -> None:
    """A watch from the last version that anybody has heard of."""
    query = {"watch": "1", "resourceVersion": str(file.newest)}
    async with contextlib.aclosing(api.lines(MAPS, query, idle=30)) as lines:
        async for line in lines:
            event = json.loads(line)
            if (event["type"], event["object"].get("code")) != ("ERROR", 410):
                raise Broken(f"a watch from {file.newest} goes on: {event}")
            return
    raise Broken(f"a watch from {file.newest} ended without a word")


async def write_until_killed(file: File, api: client.Client, server: BaseProcess) -> None:
    writers = [asyncio.create_task(write(file, api, number)) for number in range(WRITERS)]
    watcher = asyncio.create_task(watch(file, api))
    async with asyncio.timeout(PATIENCE):
        for _ in range(file.dice.randint(0, MOST)):
            await file.written.acquire()
    await asyncio.sleep(file.dice.uniform(0, A_MOMENT))
    server.kill()
    for outcome in await asyncio.gather(*writers, watcher, return_exceptions=True):
        if not isinstance(outcome, errors.ApiError):
            raise Broken(f"a client ended otherwise than by the kill: {outcome!r}")
    file.written = asyncio.Semaphore(0)


async def write(file: File, api: client.Client, writer: int) -> None:
    """One write after the other, until there is no server any more."""
    while True:
        name = f"w{writer}-{file.dice.randrange(NAMES)}"
        known = file.objects.setdefault(name, Known())
        file.number += 1
        number = file.number
        body = json.dumps({"metadata": {"name": name}, "data": {"n": str(number)}}).encode()

        if known.answered is None:
            known.under_way = [number]
            answer = await api.request("POST", MAPS, body=body)
        elif file.dice.random() < 0.3:
            known.under_way = [None]
            await api.request("DELETE", f"{MAPS}/{name}")
            known.answered, known.under_way = None, []
            file.wrote()
            continue
        else:
            known.under_way = [number]
            answer = await api.request("PUT", f"{MAPS}/{name}", body=body)
        version = file.heard(json.loads(answer)["metadata"])
        known.answered, known.under_way = (number, version), []
        file.wrote()


async def watch(file: File, api: client.Client) -> None:
    """Hears of versions, too, perhaps before who wrote them."""
    query = {"watch": "1", "resourceVersion": str(file.newest)}
    async with contextlib.aclosing(api.lines(MAPS, query, idle=60)) as lines:
        async for line in lines:
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise Broken(f"a watch from the version of a list is refused: {event}")
            file.heard(event["object"]["metadata"])
            file.counts["events"] += 1
    raise errors.ApiError("the watch ended")


async def kill(kills: int, seed: int, lives: int = LIVES) -> Counter[str]:
    """So many kills, each in the middle of writes; what was seen. Broken for what was not kept."""
    counts: Counter[str] = Counter()
    began = time.monotonic()
    while counts["kills"] < kills:
        with tempfile.TemporaryDirectory(prefix="killed-") as folder:
            dice = random.Random(f"{seed}-{counts['files']}")
            file = File(Path(folder) / "sim.db", Path(folder) / "kubeconfig", dice)
            file.counts = counts
            counts["files"] += 1
            for _ in range(min(lives, kills - counts["kills"])):
                await killed_once(file)
                counts["kills"] += 1
                progress.moved()
                if counts["kills"] % SHOW == 0:
                    seconds = time.monotonic() - began
                    print(f"{counts['kills']} kills, {seconds:.0f} s", file=sys.stderr, flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.database", description=__doc__)
    parser.add_argument("--kills", type=int, default=2000, help="so many (default 2000)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="default: any")
    asked = parser.parse_args()
    began = time.monotonic()
    try:
        counts = asyncio.run(kill(asked.kills, asked.seed))
    except Broken as broken:
        print(f"BROKEN: {broken}; seed {asked.seed}")
        return 1
    listed = ", ".join(f"{count} {what}" for what, count in counts.items())
    print(f"{listed}; seed {asked.seed}, {time.monotonic() - began:.0f} s; nothing was lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
