"""`claimd explain` of a pod that waits in a large cluster: `python -m tests.bench.explain`.

5,000 nodes and 40,000 GPUs, from a file and from the simulated API server, as a process of the
system's Python: wall and CPU seconds, and the most memory that it had.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support import apiserver, large_cluster

from . import ours

# What an answer may take on a quiet machine: CPU seconds and MiB.
SECONDS, MEMORY = 3.0, 200
Small = concurrent.futures.ProcessPoolExecutor
PLURALS = {
    "DeviceClass": "deviceclasses",
    "Node": "nodes",
    "Pod": "pods",
    "ResourceClaim": "resourceclaims",
    "ResourceSlice": "resourceslices",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.explain", description=__doc__)
    parser.add_argument("--nodes", type=int, default=large_cluster.NODES)
    arguments = parser.parse_args()
    # A process starts with the memory of the one that starts it: one that has little.
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as small,
    ):
        small.submit(run, ["--help"]).result()
        return asyncio.run(measure(small, Path(folder), arguments.nodes))


async def measure(small: Small, folder: Path, nodes: int) -> int:
    dump = folder / "cluster.json"
    large_cluster.write(dump, nodes)
    print(f"{nodes} nodes, {nodes * large_cluster.GPUS} GPUs, {dump.stat().st_size >> 20} MiB")
    subjects = (("pod/job",), ("-A", "--pending"))
    is_over = False
    for words in subjects:
        is_over |= await told(small, "file", [*words, "-f", str(dump)])

    async with apiserver.serve() as api:
        for document in large_cluster.documents(nodes):
            head = ("apiVersion", "kind")
            stored = {name: value for name, value in document.items() if name not in head}
            api.put(PLURALS[document["kind"]], stored)
        # Past the proxy in front of it, which is for faults.
        assert api._sim
        config = api._sim.kubeconfig(folder / "kubeconfig")
        for words in subjects:
            is_over |= await told(small, "API server", [*words, "--kubeconfig", str(config)])
    return 1 if is_over else 0


async def told(small: Small, source: str, words: Sequence[str]) -> bool:
    """One line of the table; whether it took too much."""
    answered = asyncio.get_running_loop().run_in_executor(small, run, words)
    wall, seconds, memory, line = await answered
    is_over = seconds > SECONDS or memory > MEMORY
    verdict = "over" if is_over else "ok"
    what = " ".join(word for word in words[:2] if not word.startswith(("-f", "--kube")))
    print(
        f"{source:<10}  {what:<12}  {wall:5.2f} s  {seconds:5.2f} s CPU  {memory:4} MiB  {verdict}"
    )
    print(f"    {line[:110]}")
    return is_over


def run(words: Sequence[str]) -> tuple[float, float, int, str]:
    """Wall and CPU seconds, MiB, and the first line of its answer."""
    python = ours.interpreter(ours.default_python())
    environment = os.environ | {"PYTHONPATH": ours.PYTHONPATH}
    began = time.monotonic()
    with subprocess.Popen(
        [str(python), "-m", "claimd", "explain", *words],
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as process:
        assert process.stdout
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - began
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss >> 10, printed.partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
