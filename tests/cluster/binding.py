"""Records what Kubernetes' own scheduler does with devices that have binding conditions.

    python -m tests.cluster.binding [SITUATION…]

Each situation of `tests/support/binding_situations.py` has its own simulated API server, with the
rig's kube-scheduler. The situation plays the driver. The outcomes are written into
`tests/cases/binding`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from claimd.kubernetes.kube import client, kubeconfig
from claimd.sim.apiserver import server
from tests.cluster import preemption
from tests.support import binding_situations as situations

# Seconds after which the scheduler has reacted to everything.
QUIET = 3.0


class Scheduler:
    """A kube-scheduler that can be restarted."""

    def __init__(self, program: Path, folder: Path, kubeconfig_: Path, timeout: int) -> None:
        arguments = {"bindingTimeout": f"{timeout}s"}
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig_)},
            "leaderElection": {"leaderElect": False},
            "profiles": [{"pluginConfig": [{"name": "DynamicResources", "args": arguments}]}],
        }
        path = folder / "scheduler.yaml"
        path.write_text(json.dumps(config))
        self._command = (program, f"--config={path}", "--secure-port=0", f"--cert-dir={folder}")
        self._process: asyncio.subprocess.Process | None = None

    async def restart(self) -> None:
        await self.end()
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stderr=asyncio.subprocess.DEVNULL
        )

    async def end(self) -> None:
        if self._process is not None:
            self._process.terminate()
            await self._process.wait()


async def record(name: str, program: Path) -> tuple[list[Any], str]:
    """Returns what each look saw, and a sentence with the number of looks."""
    situation, timeout = situations.ALL[name]
    looks: list[Any] = []

    async def look(seen: Any) -> None:
        await asyncio.sleep(QUIET)
        looks.append(await seen())

    with tempfile.TemporaryDirectory(prefix="sim-", dir="/tmp") as folder:
        async with server.serve(server.Options(tls=True)) as api:
            path = api.kubeconfig(Path(folder) / "admin")
            client_ = client.Client(kubeconfig.load(path), agent="recorder")
            scheduler = Scheduler(program, Path(folder), path, timeout)
            try:
                await scheduler.restart()
                await situation(
                    situations.Stage(preemption.Cluster(client_), look, scheduler.restart)
                )
            finally:
                await scheduler.end()
                await client_.close()
    return looks, f"{len(looks)} looks"


def main() -> int:
    return preemption.record_all(__doc__, situations, record)


if __name__ == "__main__":
    sys.exit(main())
