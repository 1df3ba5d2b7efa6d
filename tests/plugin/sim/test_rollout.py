"""Rollouts as kubectl sees them: status, history and undo."""

import asyncio
import shutil

import pytest

from claimd.sim import controllers
from claimd.sim.apiserver.server import Options, serve
from claimd.sim.requests import Request, patch_status
from tests.support import planes
from tests.support.plane import running

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl")


def deployment(image):
    spec = planes.pod("x")["spec"]
    spec = spec | {"containers": [spec["containers"][0] | {"name": "main", "image": image}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "web",
            "namespace": "default",
            "annotations": {"kubernetes.io/change-cause": f"to {image}"},
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
        },
    }


@pytest.mark.slow
async def test_kubectl_sees_history_and_undoes_a_rollout(tmp_path):
    async with serve(Options()) as server, running(server, tmp_path, controllers.run) as plane:
        config = server.kubeconfig(tmp_path / "kc")

        async def kubectl(*words):
            process = await asyncio.create_subprocess_exec(
                KUBECTL,
                f"--kubeconfig={config}",
                *words,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            printed, _ = await process.communicate()
            return process.returncode, printed.decode()

        def images():
            pods = plane.copies["pods"].objects.values()
            return sorted(pod["spec"]["containers"][0]["image"] for pod in pods)

        await plane.api.send(
            Request(
                method="POST",
                resource="deployments",
                namespace="default",
                body=deployment("a:1"),
            )
        )
        await plane.until(lambda: images() == ["a:1"])
        (first,) = plane.copies["pods"].objects.values()
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        await plane.api.send(patch_status("pods", first, ready))
        code, said = await kubectl("set", "image", "deployment/web", "main=b:2")
        assert code == 0, said
        await plane.until(lambda: images() == ["a:1", "b:2"])

        # no kubelet is there to make the new pod ready
        code, said = await kubectl("rollout", "status", "deployment/web", "--timeout=1s")
        assert code == 1
        assert "1 old replicas are pending termination" in said

        code, said = await kubectl("rollout", "history", "deployment/web")
        assert [line.split() for line in said.splitlines()[2:4]] == [
            ["1", "to", "a:1"],
            ["2", "to", "a:1"],
        ]
        code, said = await kubectl("rollout", "undo", "deployment/web")
        assert (code, said) == (0, "deployment.apps/web rolled back\n")
        await plane.until(lambda: images() == ["a:1"])
        code, said = await kubectl("rollout", "history", "deployment/web")
        assert [line.split()[0] for line in said.splitlines()[2:4]] == ["2", "3"]
