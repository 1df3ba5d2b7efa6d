"""How long a look at the hardware takes, from the kernel's word as well, and whether many looks
cost memory, on fake nodes of the largest kinds.

Runs in a process of its own, `python -m tests.bench.scanning`, so that memory is that of scans
alone.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from claimd_devices import fake, faults, scan, uevents, watch
from claimd_devices.gpu import Inventory, Roots, Rules

from .errors import BenchError

LOOKS, MANY = 21, 1000
NODES = {"scan_16": ["nvidia:h100=16"], "scan_parts": ["intel:max1550=8,vfs=63"]}
KEYS = (*NODES, "scan_growth", "uevent_16")
EVENTS = 6  # changes that the kernel tells of, each after a calm


def take() -> dict[str, float]:
    """Milliseconds of a scan by kind of node, and by how many KiB 1,000 scans make the process
    grow.
    """
    done = subprocess.run(
        [sys.executable, "-m", __name__], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchError(f"the scans failed: {done.stderr.strip()[-500:]}")
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds


def main() -> None:
    figures: dict[str, float] = {}
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # as the kernel's own trees are
    with tempfile.TemporaryDirectory(prefix="bench-scan-", dir=memory) as folder:
        for key, words in NODES.items():
            fake.write(Path(folder) / key, fake.parse(words))
            figures[key] = 1000 * statistics.median(
                _seconds(Roots.in_folder(Path(folder) / key)) for _ in range(LOOKS)
            )
        roots = Roots.in_folder(Path(folder) / "scan_16")
        for _ in range(50):
            scan.scan(roots)
        before = _resident()
        for _ in range(MANY):
            scan.scan(roots)
        figures["scan_growth"] = _resident() - before
        figures["uevent_16"] = 1000 * statistics.median(
            asyncio.run(_until_seen(Path(folder) / "scan_16"))
        )
    print(json.dumps(figures))


def _seconds(roots: Roots) -> float:
    begin = time.perf_counter()
    scan.scan(roots)
    return time.perf_counter() - begin


async def _until_seen(tree: Path) -> list[float]:
    """Seconds from a uevent until there is an Inventory with what it is about."""
    faults.enable(tree)
    address = scan.scan(Roots.in_folder(tree)).gpus[0].address
    path = f"/devices/pci0000:10/0000:10:01.0/{address}"
    seen: asyncio.Queue[Inventory] = asyncio.Queue()
    watching = asyncio.create_task(
        watch.Watch(Roots.in_folder(tree), Rules(), 3600.0).run(seen.put_nowait)
    )
    await seen.get()
    took = []
    for number in range(EVENTS):
        await asyncio.sleep(watch.CALM + 0.1)
        action, change = ("remove", fake.unplug) if number % 2 == 0 else ("add", fake.plug)
        change(tree, address)
        began = time.perf_counter()
        uevents.broadcast(tree, uevents.message(action, path, "pci"))
        while (action == "add") != any(gpu.address == address for gpu in (await seen.get()).gpus):
            pass
        took.append(time.perf_counter() - began)
    watching.cancel()
    await asyncio.wait([watching])
    return took


def _resident() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4.0


if __name__ == "__main__":
    main()
