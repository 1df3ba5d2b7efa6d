"""A long life: many claims prepared and given back by one plugin. It must not grow slower or
larger.

`python -m tests.faults.long [CLAIMS]`; exit code 1 if a limit is not kept. The API server is the
loopback one of tests.support, so that nothing but the plugin can change over time.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from claimd_devices import fake, scan
from claimd_devices.gpu import Roots
from tests.support import apiserver
from tests.support.kubelet import Kubelet, calling
from tests.support.worlds import NODE, claim_object, result

PART = 0.25  # of the claims is compared: the first with the last
SLOWER = 1.2  # times the p90 of the first
MORE_KB = 2048  # resident, which the allocator may round up


@dataclass(frozen=True)
class State:
    """What a process holds."""

    files: int
    threads: int
    resident_kb: int

    @classmethod
    def of(cls, pid: int) -> State:
        status = dict(
            line.split(":", 1)
            for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        )
        return cls(
            files=len(os.listdir(f"/proc/{pid}/fd")),
            threads=int(status["Threads"]),
            resident_kb=int(status["VmRSS"].split()[0]),
        )


async def live(claims: int, folder: Path) -> list[str]:
    """Plays the kubelet; what was not kept, in words."""
    fake.write(folder / "fake", fake.parse(["nvidia:h100=8"]))
    gpus = scan.scan(Roots.in_folder(folder / "fake")).gpus
    async with apiserver.serve() as api:
        api.put("nodes", {"metadata": {"name": NODE, "uid": "node-uid"}})
        kubelet = Kubelet(folder / "kubelet")
        with open(folder / "log", "w", encoding="utf-8") as log:
            plugin = subprocess.Popen(command(folder, api.url), stderr=log)
        try:
            info = await kubelet.register()
            took, states = [], []
            async with calling(info.endpoint) as kubelets:
                for n in range(claims):
                    claim = api.put(
                        "resourceclaims", claim_object(f"c{n}", result(gpus[n % len(gpus)].name))
                    )
                    began = time.perf_counter()
                    answer = (await kubelets.prepare(claim))[claim["metadata"]["uid"]]
                    took.append(time.perf_counter() - began)
                    if answer.error:
                        raise AssertionError(answer.error)
                    if n % 4 == 0:  # the others are given back before their status is written
                        await apiserver.until(lambda: api.count("PATCH", claim["metadata"]["name"]))  # noqa: B023
                    await kubelets.unprepare(claim)
                    api.delete("resourceclaims", f"c{n}", "default")
                    if n in (int(claims * PART), claims - 1):
                        states.append(State.of(plugin.pid))
        finally:
            plugin.terminate()
            plugin.wait(10)
    return judge(took, *states)


def command(folder: Path, url: str) -> list[str]:
    cluster = {
        "current-context": "t",
        "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
        "clusters": [{"name": "t", "cluster": {"server": url}}],
        "users": [{"name": "t", "user": {}}],
    }
    (folder / "kubeconfig").write_text(json.dumps(cluster), encoding="utf-8")
    return [
        *(sys.executable, "-m", "claimd", "run", f"--node-name={NODE}", "--log-format=json"),
        *(f"--kubelet-dir={folder}/kubelet", f"--cdi-dir={folder}/cdi", f"--root={folder}/fake"),
        f"--kubeconfig={folder}/kubeconfig",
    ]


def judge(took: list[float], early: State, late: State) -> list[str]:
    part = int(len(took) * PART)
    first, last = (
        statistics.quantiles(some, n=10)[8] * 1e3 for some in (took[:part], took[-part:])
    )
    print(
        f"{len(took)} claims; p90 of the first {part}: {first:.2f} ms, of the last: {last:.2f} ms ({last / first:.2f})"
    )
    for when, state in (("after a quarter", early), ("at the end", late)):
        print(
            f"{when}: {state.files} open files, {state.threads} threads, {state.resident_kb} kB resident"
        )
    wrong = []
    if last > SLOWER * first:
        wrong.append(
            f"the last are {last / first:.2f} times as slow as the first; at most {SLOWER} is right"
        )
    if late.files > early.files + 1:  # a connection may be on its way
        wrong.append(f"{late.files - early.files} more open files")
    if late.resident_kb > early.resident_kb + MORE_KB:
        wrong.append(f"{late.resident_kb - early.resident_kb} kB more memory")
    return wrong


def main() -> int:
    claims = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with tempfile.TemporaryDirectory(prefix="long-") as folder:
        wrong = asyncio.run(live(claims, Path(folder)))
    for sentence in wrong:
        print(f"not kept: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
