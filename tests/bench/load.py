"""The simulated API server under load: `python -m tests.bench.load`.

The slices of 5,000 nodes with 8 devices each, 5,000 claims and 200 watchers. Then 20 clients list
all slices at once, while a neighbour asks for one small thing after another. Times are those of
clients on the same machine that read answers and do not parse them; they are processes of their
own, as the server is. CPU time and memory are the server's.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import http.client
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from claimd.kubernetes.kube import auth, client

from .allocator import under_system_python
from .program import Program, running
from .sim import GROUP, PLACE, claim, slice_

SLICES, CLAIMS, WATCHERS, LISTS = 5000, 5000, 200, 20
WRITERS = 8  # requests that are under way at once while objects are made
SLICES_PATH = f"{GROUP}/resourceslices"
EQUAL_PATH = SLICES_PATH.replace("/v1/", "/v1beta2/")
NEIGHBOUR = f"{PLACE}/c0000"

PATIENCE = 120.0  # seconds

# What the project wants.
BLOCKED, MEMORY, CREATE = 100.0, 300.0, 1.0  # milliseconds, MiB, milliseconds of CPU

Figure = tuple[str, float, str, float | None]  # what, how much, its unit, at most


def main() -> int:
    under_system_python("tests.bench.load")
    parser = argparse.ArgumentParser(prog="python -m tests.bench.load", description=__doc__)
    parser.add_argument("--list", metavar="PATH", help=argparse.SUPPRESS)  # as one of the clients
    parser.add_argument("--kubeconfig", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.list:
        list_once(asked.kubeconfig, asked.list)
        return 0

    figures = asyncio.run(measured())
    print(f"Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.2f}\n")
    for what, value, unit, limit in figures:
        over = "over" if limit is not None and value > limit else ""
        wanted = "" if limit is None else f"{limit:g}"
        print(f"{what:<52} {value:10.2f} {unit:<4} {wanted:>6} {over}".rstrip())
    return 1 if any(limit is not None and value > limit for _, value, _, limit in figures) else 0


async def measured() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig, log = Path(folder) / "kubeconfig", Path(folder) / "log"
        command = [sys.executable, "-m", "claimd", "sim", "--kubeconfig", str(kubeconfig)]
        with running(command, log, None) as server:
            server.wait_for("its first line", lambda: b"\n" in log.read_bytes())
            api = client.Client(auth.client_config(str(kubeconfig), Path(folder)), agent="bench")
            try:
                return await figures_of(server, api, kubeconfig)
            finally:
                await api.close()


async def figures_of(server: Program, api: client.Client, kubeconfig: Path) -> list[Figure]:
    figures: list[Figure] = []
    create = await measure_writes(
        server, api, SLICES_PATH, [slice_(number) for number in range(SLICES)]
    )
    figures.append(("create of a slice of 8 devices, CPU", create, "ms", CREATE))
    claims = [claim(f"c{number:04}") for number in range(CLAIMS)]
    figures.append(
        ("create of a claim, CPU", await measure_writes(server, api, PLACE, claims), "ms", None)
    )

    watchers = await started_watchers(api)
    resident = server.memory()[0]
    figures.append((f"resident with {WATCHERS} watchers", resident, "MiB", None))

    # The first list of a version pays for what is kept of it.
    for title, path in (("v1", SLICES_PATH), ("v1beta2, of equal shape", EQUAL_PATH)):
        used, took, _ = await measure_lists(server, api, kubeconfig, path, 1)
        figures.append((f"first list of all slices in {title}, CPU", used, "ms", None))

    before = server.memory()[0]
    reset_peak(server)
    used, took, waits = await measure_lists(server, api, kubeconfig, SLICES_PATH, LISTS)
    peak = peak_memory(server)
    figures += [
        (f"{LISTS} lists at once", took, "ms", None),
        (f"{LISTS} lists at once, CPU", used, "ms", None),
        ("a neighbour of theirs waits, median", statistics.median(waits), "ms", None),
        ("a neighbour of theirs waits, longest", max(waits), "ms", BLOCKED),
        (f"memory that {LISTS} lists take", peak - before, "MiB", MEMORY),
        ("resident at most", peak, "MiB", None),
    ]

    used, took, waits = await measure_lists(
        server, api, kubeconfig, SLICES_PATH.replace("/v1/", "/v1beta1/"), 1
    )
    figures.append(("first list of all slices in v1beta1, CPU", used, "ms", None))
    figures.append(("a neighbour of it waits, longest", max(waits), "ms", BLOCKED))

    took = await event_at_all(api, watchers)
    figures.append((f"an event at the last of {WATCHERS} watchers", took, "ms", None))
    for watcher in watchers:
        watcher.cancel()
    return figures


async def measure_writes(
    server: Program, api: client.Client, path: str, bodies: Sequence[bytes]
) -> float:
    """Milliseconds of the server's CPU that each costs."""
    waiting: Iterator[bytes] = iter(bodies)

    async def write() -> None:
        for body in waiting:
            await api.request("POST", path, body=body, timeout=PATIENCE)

    before = server.cpu_time()
    await asyncio.gather(*(write() for _ in range(WRITERS)))
    return (server.cpu_time() - before) / len(bodies) * 1e3


async def measure_lists(
    server: Program, api: client.Client, kubeconfig: Path, path: str, count: int
) -> tuple[float, float, list[float]]:
    """CPU, time until the last has its list, and how long each request of a neighbour took."""
    command = [sys.executable, "-m", "tests.bench.load", "--kubeconfig", str(kubeconfig)]
    clients = [
        subprocess.Popen([*command, "--list", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(count)
    ]
    for client_ in clients:
        assert client_.stdout
        await asyncio.to_thread(client_.stdout.readline)  # it is connected

    used, began = server.cpu_time(), time.perf_counter()
    for client_ in clients:
        assert client_.stdin
        client_.stdin.close()
    waits = []
    while any(client_.poll() is None for client_ in clients):
        asked = time.perf_counter()
        await api.request("GET", NEIGHBOUR, timeout=PATIENCE)
        waits.append((time.perf_counter() - asked) * 1e3)
        await asyncio.sleep(0.002)
    took = (time.perf_counter() - began) * 1e3
    if any(client_.returncode for client_ in clients):
        raise SystemExit("bench: a list failed")
    return (server.cpu_time() - used) * 1e3, took, waits


def list_once(kubeconfig: Path, path: str) -> None:
    """As a client of its own: connects, says so, waits for its start, lists everything."""
    os.nice(10)  # what the neighbour waits for is the server, not the others' turn on this machine
    config = json.loads(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    address = cluster["server"].removeprefix("https://")
    connection = http.client.HTTPSConnection(address, context=ssl.create_default_context(cadata=ca))
    connection.connect()
    print("connected", flush=True)
    sys.stdin.read()

    connection.request("GET", path, headers={"Authorization": f"Bearer {user['token']}"})
    body = connection.getresponse().read()
    if body.count(b'"pool":') != SLICES:
        raise SystemExit(f"bench: not all of the slices are in {len(body)} bytes")
    connection.close()


# ---------------------------------------------------------------- watchers


async def started_watchers(api: client.Client) -> list[asyncio.Task[None]]:
    """Each of which has seen one change."""
    body = await api.request("GET", PLACE, query={"limit": "1"})
    version = json.loads(body)["metadata"]["resourceVersion"]
    query = {"watch": "true", "resourceVersion": version}

    async def watch() -> None:
        async for _ in api.lines(PLACE, query, idle=600):
            SEEN.release()

    watchers = [asyncio.create_task(watch()) for _ in range(WATCHERS)]
    await event_at_all(api, watchers, "first")
    return watchers


SEEN = asyncio.Semaphore(0)


async def event_at_all(
    api: client.Client, watchers: Sequence[asyncio.Task[None]], name: str = "last"
) -> float:
    began = time.perf_counter()
    await api.request("POST", PLACE, body=claim(f"watched-{name}"), timeout=PATIENCE)
    for _ in watchers:
        await SEEN.acquire()
    return (time.perf_counter() - began) * 1e3


# ---------------------------------------------------------------- memory


def reset_peak(server: Program) -> None:
    Path(f"/proc/{server.child.pid}/clear_refs").write_text("5")


def peak_memory(server: Program) -> float:
    """MiB that were resident at most since then."""
    for line in Path(f"/proc/{server.child.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("bench: the server has no peak in /proc: it has ended")


if __name__ == "__main__":
    sys.exit(main())
