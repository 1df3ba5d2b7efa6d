"""The simulated API server with 1,000 claims and the slices of 100 nodes: `python -m
tests.bench.sim`.

The server is a process of its own, as `claimd sim` starts it; times are those of a client on the
same machine, who reads answers but does not parse them. The start is from exec to the first answer,
the median of several.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

from claimd.kubernetes.kube import auth, client

from .allocator import Row, table, under_system_python

CLAIMS, NODES, WATCHERS, STARTS = 1000, 100, 100, 5
GROUP = "/apis/resource.k8s.io/v1"
PLACE = f"{GROUP}/namespaces/default/resourceclaims"
LIST, CREATE, WATCH, START = 50e-3, 2e-3, 100e-3, 0.5  # what the project wants, in seconds


def main() -> int:
    under_system_python("tests.bench.sim")
    starts = [start_once() for _ in range(STARTS)]
    rows = [
        Row(title="exec to first answer", ours=statistics.median(starts), limit=START),
        *asyncio.run(measured()),
    ]
    print(
        f"Python {sys.version.split()[0]} of {sys.base_prefix}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}\n"
    )
    print(table(rows))
    return 1 if any(row.over for row in rows) else 0


def start_once() -> float:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address, anybody = f"https://127.0.0.1:{port}/version", ssl._create_unverified_context()
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "claimd", "sim", "--port", str(port)], stdout=subprocess.PIPE
    ) as server:
        try:
            while True:
                with (
                    contextlib.suppress(OSError),
                    urllib.request.urlopen(address, context=anybody) as answer,
                ):
                    answer.read()
                    return time.monotonic() - began
                time.sleep(0.001)
        finally:
            server.terminate()


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[client.Client]:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "kubeconfig"
        command = [sys.executable, "-m", "claimd", "sim", "--kubeconfig", str(config)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
            try:
                assert server.stdout
                await asyncio.to_thread(server.stdout.readline)
                api = client.Client(auth.client_config(str(config), Path(folder)), agent="bench")
                yield api
                await api.close()
            finally:
                server.terminate()


async def measured() -> list[Row]:
    async with connected() as api:
        claims = [
            await timed(api, "POST", PLACE, claim(f"c{number:04}")) for number in range(CLAIMS)
        ]
        slices = [
            await timed(api, "POST", f"{GROUP}/resourceslices", slice_(number))
            for number in range(NODES)
        ]
        lists = {
            f"list of {CLAIMS} claims": (PLACE, LIST),
            f"list of {NODES} slices of 8 devices": (f"{GROUP}/resourceslices", LIST),
            f"list of {CLAIMS} claims in v1beta1": (PLACE.replace("/v1/", "/v1beta1/"), LIST),
        }
        rows = [
            Row(title="create a claim", ours=statistics.median(claims), limit=CREATE),
            Row(title="create a slice of 8 devices", ours=statistics.median(slices), limit=CREATE),
        ]
        for title, (path, limit) in lists.items():
            took = [await timed(api, "GET", path) for _ in range(11)]
            rows.append(Row(title=title, ours=statistics.median(took), limit=limit))
        events = statistics.median(await events_of(api))
        rows.append(
            Row(title=f"an event at the last of {WATCHERS} watchers", ours=events, limit=WATCH)
        )
        return rows


async def timed(api: client.Client, method: str, path: str, body: bytes | None = None) -> float:
    began = time.monotonic()
    await api.request(method, path, body=body)
    return time.monotonic() - began


async def events_of(api: client.Client) -> list[float]:
    """From the moment that a change is asked for until the last watcher has read it, ten times."""
    seen = asyncio.Semaphore(0)

    async def watch() -> None:
        query = {"watch": "true", "resourceVersion": version}
        async with contextlib.aclosing(api.lines(PLACE, query, idle=30)) as lines:
            async for _ in lines:
                seen.release()

    version = json.loads(await api.request("GET", PLACE, query={"limit": "1"}))["metadata"][
        "resourceVersion"
    ]
    watchers = [asyncio.create_task(watch()) for _ in range(WATCHERS)]
    took = []
    for number in range(11):
        began = time.monotonic()
        await api.request("POST", PLACE, body=claim(f"watched{number}"))
        for _ in watchers:
            await seen.acquire()
        took.append(time.monotonic() - began)
    for watcher in watchers:
        watcher.cancel()
    return took[1:]  # the first also waited for the watches to begin


def claim(name: str) -> bytes:
    request = {
        "name": "gpu",
        "exactly": {
            "deviceClassName": "gpu.example.com",
            "allocationMode": "ExactCount",
            "count": 1,
        },
    }
    labels = {"app": name, "team": "a"}
    return json.dumps(
        {"metadata": {"name": name, "labels": labels}, "spec": {"devices": {"requests": [request]}}}
    ).encode()


def slice_(number: int) -> bytes:
    node = f"node-{number:03}"
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "uuid": {"string": f"GPU-{number:04}-{index:04}"},
                "productName": {"string": "an accelerator"},
                "driverVersion": {"version": "1.2.3"},
                "numaNode": {"int": index % 2},
                "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{index:02}"},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for index in range(8)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": devices}
    return json.dumps({"metadata": {"name": f"{node}-gpu"}, "spec": spec}).encode()


if __name__ == "__main__":
    sys.exit(main())
