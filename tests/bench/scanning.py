"""How long a look at the hardware takes and whether many looks cost memory, on fake nodes of the largest kinds.

Runs in a process of its own, `python -m tests.bench.scanning`, so that memory is that of scans alone.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from devices import fake, scan
from devices.gpu import Roots

from .errors import BenchError

LOOKS, MANY = 21, 1000
NODES = {"scan_16": ["nvidia:h100=16"], "scan_parts": ["intel:max1550=8,vfs=63"]}
KEYS = (*NODES, "scan_growth")


def take() -> dict[str, float]:
    """Milliseconds of a scan by kind of node, and by how many KiB 1,000 scans make the process grow."""
    done = subprocess.run([sys.executable, "-m", __name__], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"the scans failed: {done.stderr.strip()[-500:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    found: dict[str, float] = {}
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # as the kernel's own trees are
    with tempfile.TemporaryDirectory(prefix="bench-scan-", dir=memory) as folder:
        for key, words in NODES.items():
            fake.write(Path(folder) / key, fake.parse(words))
            found[key] = 1000 * statistics.median(_seconds(Roots.under(Path(folder) / key)) for _ in range(LOOKS))
        roots = Roots.under(Path(folder) / "scan_16")
        for _ in range(50):
            scan.scan(roots)
        before = _resident()
        for _ in range(MANY):
            scan.scan(roots)
        found["scan_growth"] = _resident() - before
    print(json.dumps(found))


def _seconds(roots: Roots) -> float:
    begin = time.perf_counter()
    scan.scan(roots)
    return time.perf_counter() - begin


def _resident() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4.0


if __name__ == "__main__":
    main()
