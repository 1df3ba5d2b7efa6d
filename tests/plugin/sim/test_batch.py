"""Jobs as kubectl creates and follows them, on nodes with GPUs."""

import asyncio
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from claimd.sim import cluster
from claimd.sim.apiserver import server
from tests.support.workload_objects import job

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl")
TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "gpu"},
    "spec": {
        "spec": {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.claimd.dev"}}]
            }
        }
    },
}


@pytest.fixture
async def kubectl():
    """Runs kubectl on a cluster of one node with one GPU."""
    with tempfile.TemporaryDirectory(prefix="sim-", dir="/tmp") as folder:
        machines = [cluster.Machine(name="one", gpus=["nvidia:h100"])]
        async with cluster.up(machines, Path(folder), options=server.Options()) as up:
            words = [f"--kubeconfig={up.api.kubeconfig(Path(folder) / 'kc')}"]
            words.append(f"--cache-dir={folder}/cache")

            async def run(*more, text=""):
                process = await asyncio.create_subprocess_exec(
                    KUBECTL,
                    *words,
                    *more,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    env=os.environ,
                )
                async with asyncio.timeout(60):
                    printed, _ = await process.communicate(text.encode())
                assert process.returncode == 0, printed.decode()
                return printed.decode()

            yield run


@pytest.mark.slow
async def test_kubectl_makes_workloads_and_follows_them(kubectl):
    await _makes_a_job_waits_for_it_and_reads_its_logs(kubectl)


async def _makes_a_job_waits_for_it_and_reads_its_logs(kubectl):
    said = await kubectl(
        "create", "job", "hello", "--image=busybox", "--", "sh", "-c", "echo $0 hi"
    )
    assert said == "job.batch/hello created\n"
    said = await kubectl("wait", "--for=condition=complete", "job/hello", "--timeout=50s")
    assert said == "job.batch/hello condition met\n"
    head, row = (await kubectl("get", "jobs")).splitlines()
    assert head.split() == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert row.split()[:3] == ["hello", "Complete", "1/1"]
    assert await kubectl("logs", "job/hello") == "sh hi\n"
    assert "job.batch/hello" in await kubectl("get", "all")

    # two pods and one GPU: what one gives back is the other's
    spec = {"completions": 2, "parallelism": 2, "completionMode": "Indexed"}
    training = job("train", "echo $JOB_COMPLETION_INDEX $HOSTNAME", **spec)
    pod = training["spec"]["template"]["spec"]
    pod["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    pod["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    for document in (TEMPLATE, training):
        await kubectl("apply", "-f", "-", text=json.dumps(document))
    await kubectl("wait", "--for=condition=complete", "job/train", "--timeout=50s")
    logs = await kubectl("logs", "-l", "batch.kubernetes.io/job-name=train")
    assert sorted(logs.splitlines()) == ["0 train-0", "1 train-1"]

    await kubectl("delete", "job", "hello", "train", "--cascade=foreground")
    assert await kubectl("get", "pods,resourceclaims", "-o", "name") == ""
