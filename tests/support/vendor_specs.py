"""A vendor's own demo and test specs on a simulated cluster where claimd is that vendor's driver.

`python -m tests.support.vendor_specs gpu.nvidia.com FOLDER [FILE ...]` takes a copy of the vendor's
repository, brings up a node of its fake GPUs with the component's classes and a real `claimd run`, and applies one
spec after the other as it is, but for the commands of its containers: there is no GPU to compute on. It
prints what became of each. docs/drop-in.md has the outcome of the newest releases.
"""

import argparse
import asyncio
import copy
import json
import re
import sys
import tempfile
from pathlib import Path

import yaml

from claimd.kubernetes.kube import errors
from claimd.sim import cluster
from claimd.sim.apiserver import server
from claimd.sim.dynamic_client import DynamicClient, UnknownKindError
from tests.support import nvml_stub

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
BASE_DRIVER = "gpu.claimd.dev"
COMPONENTS = {
    "gpu.nvidia.com": "as-nvidia",
    "gpu.amd.com": "as-amd",
    "gpu.intel.com": "as-intel",
}
# A node each. As many as the largest spec wants at once.
MACHINES = {
    "gpu.nvidia.com": (
        ("nvidia:a100=2", "nvidia:h100=2"),
        ("nvidia:a100,mig=4g.40gb:2g.20gb:1g.10gb", "nvidia:h100=2"),
        ("nvidia:l4,driver=vfio-pci", "iommu=1"),
    ),
    "gpu.amd.com": (("amd:mi300x=2",), ("amd:mi300x=2,mode=cpx,memory_mode=nps4",)),
    "gpu.intel.com": (("intel:flex170=2", "intel:arc=2"), ("intel:b580=2", "intel:flex170,vfs=4")),
}
# What NVIDIA's library would tell of the instances of the second.
LIBRARY = "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05"
PARTS = '{1, 0, "4g.40gb", 56, 40192}, {3, 0, "2g.20gb", 28, 19968}, {7, 0, "1g.10gb", 14, 9728},'
# What a suite fills into its templates; each is true of a machine above.
VALUES = {
    "DriverVersion": "550.0.0",
    "RequiredMemoryGi": "40",
    "ProductPattern": "a100",
    "Replicas": "2",
    "Namespace": "suite",
    "TEST_K8S_RESOURCE_API_VERSION": "v1",
    "__INDEX__": "1",
}
# What is in a file of its own.
NEEDS = {
    "fabric-manager-partitioning/pod.yaml": (
        "demo/specs/fabric-manager-partitioning/resourceClaimTemplates.yaml"
    ),
    "pods-shared-gpu.yaml": "tests/bats/specs/rc-shared-gpu.yaml",
    "pod-for-claim-external-gpu.yaml": "deployments/gpu/examples/claim-external-gpu.yaml",
    "gpu-sample-app.yaml": "deployments/gpu/examples/resource-claim-template.yaml",
    "selectors/pods.yaml": "demo/specs/selectors/claims.yaml",
    "sharing-demo-job.yaml": "demo/specs/mig+mps/sharing-demo-claims.yaml",
    "sharing-demo-job-1.yaml": "demo/specs/mig+mps/sharing-demo-claims-1.yaml",
}
_PODS = re.compile(r"^ *kind: (Pod|Deployment|Job|MPIJob)\b", re.MULTILINE | re.IGNORECASE)
_PLACES = re.compile(r"(^|/)(demo/specs|examples?|tests?)/")
OF_PODS = ("Pod", "Deployment", "Job")
SECONDS = 12  # after which a spec is one that does not run


def documents(text):
    """The objects of a spec, its templates filled in."""
    for name, value in VALUES.items():
        text = re.sub(rf"\{{\{{ *\.{name} *\}}\}}|\$\{{{name}\}}|\b{name}\b(?<=__)", value, text)
    return [document for document in yaml.safe_load_all(text) if document]


def without_commands(document):
    """A pod, or what makes pods, whose containers wait. A Job has no controller here: its pod."""
    document = copy.deepcopy(document)
    if document["kind"] == "Job":
        template, name = document["spec"]["template"], document["metadata"]["name"]
        metadata = document["metadata"] | {"name": name}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata} | {
            "spec": template["spec"]
        }
    spec = document["spec"]
    if document["kind"] == "Deployment":
        # A selector that its template does not fit is refused by any API server.
        spec = spec["template"]["spec"]
    spec["terminationGracePeriodSeconds"] = 1
    for container in spec["containers"]:
        container["command"] = ["sleep", "600"]
        container.pop("args", None)
    return document


class Suite:
    """What is applied and looked at, on a cluster that is up."""

    def __init__(self, up):
        self._api, self._kinds = up.client, DynamicClient(up.client)

    async def install(self, driver):
        """What the component is, beside the settings."""
        role = (DEPLOY / "base/rbac.yaml").read_text().replace(BASE_DRIVER, driver)
        classes = (DEPLOY / f"components/{COMPONENTS[driver]}/deviceclasses.yaml").read_text()
        # Where Intel's tests are; its own installation makes it.
        namespace = {"apiVersion": "v1", "kind": "Namespace"}
        namespace |= {"metadata": {"name": "intel-gpu-resource-driver"}}
        for document in [namespace, *yaml.safe_load_all(role), *yaml.safe_load_all(classes)]:
            if document["kind"] in ("Namespace", "ClusterRole", "DeviceClass"):
                await self._kinds.apply(document)

    async def items(self, path):
        return json.loads(await self._api.request("GET", path))["items"]

    async def published(self, driver, nodes):
        while True:
            slices = await self.items("/apis/resource.k8s.io/v1/resourceslices")
            if {
                each["spec"]["nodeName"] for each in slices if each["spec"]["driver"] == driver
            } == (set(nodes)):
                return slices
            await asyncio.sleep(0.1)

    async def told(self):
        """Once a device has what the library alone knows."""
        while "4g.40gb" not in str(await self.items("/apis/resource.k8s.io/v1/resourceslices")):
            await asyncio.sleep(0.1)

    async def outcome(self, objects):
        """`runs`, or why not. Nothing is left of them afterwards."""
        paths = []
        try:
            for written in objects:
                is_pods = written.get("kind") in OF_PODS
                document = without_commands(written) if is_pods else written
                metadata = document["metadata"]
                if "generateName" in metadata and "name" not in metadata:
                    metadata["name"] = metadata.pop("generateName") + "0"
                await self._kinds.apply(document)
                paths.append(document)
            return await self._seen(paths)
        except (UnknownKindError, errors.ApiError, KeyError) as error:
            return f"is not taken: {error!s}"[:300]
        finally:
            await self._cleared(paths)

    async def _seen(self, paths):
        wanted = 0
        for document in paths:
            if document["kind"] == "Deployment":
                wanted += document["spec"].get("replicas", 1)
            wanted += document["kind"] == "Pod"
        if not wanted:
            return "has no pod"

        pods, deadline = [], asyncio.get_running_loop().time() + SECONDS
        while asyncio.get_running_loop().time() < deadline:
            pods = await self._pods()
            running = [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]
            if len(running) == wanted:
                return "runs"
            await asyncio.sleep(0.1)
        said = {await self._reason(pod) for pod in pods}
        return f"{len(running)} of {wanted} run: {'; '.join(sorted(said - {''}))}"[:900]

    async def _pods(self):
        pods = await self.items("/api/v1/pods")
        return [pod for pod in pods if pod["metadata"]["namespace"] != cluster.NAMESPACE]

    async def _reason(self, pod):
        """What the scheduler says, or else what the kubelet said last."""
        for condition in pod.get("status", {}).get("conditions", ()):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return condition.get("message", "")
        if pod.get("status", {}).get("phase") == "Running":
            return ""
        namespace = pod["metadata"]["namespace"]
        events = await self.items(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
        name = pod["metadata"]["name"]
        notes = [
            event.get("note", "")
            for event in events
            if event["regarding"].get("name") == name and event.get("type") == "Warning"
        ]
        return notes[-1] if notes else f"{pod.get('status', {}).get('phase')} without a word"

    async def _cleared(self, paths):
        for document in reversed(paths):
            if document["kind"] == "Namespace":
                continue
            kind = await self._kinds.kind_of(document)
            namespace = document["metadata"].get("namespace", "default")
            await self._kinds.delete(kind, namespace, document["metadata"]["name"])
        while await self._pods() or await self.items("/apis/resource.k8s.io/v1/resourceclaims"):
            await asyncio.sleep(0.1)


async def run(driver, folder, files, share, nvml):
    machines = [
        cluster.Machine(
            name=f"node-{number}",
            gpus=gpus,
            settings={
                "driver-name": driver,
                "include": driver.split(".")[1],
                "require-libraries": "false",
                "vfio": "true",
                "share": share,
                "nvml": str(nvml).lower(),
            },
        )
        for number, gpus in enumerate(MACHINES[driver])
    ]
    with tempfile.TemporaryDirectory(prefix="specs-", dir="/tmp") as place:
        async with cluster.up(machines, Path(place), options=server.Options()) as up:
            suite = Suite(up)
            await suite.install(driver)
            await suite.published(driver, [machine.name for machine in machines])
            if nvml:
                divided = up.nodes["node-1"]
                nvml_stub.build(divided.tree / LIBRARY, parts=PARTS)
                divided.daemon.kill()  # it looks for the library at its start
                await suite.told()
            for file in files:
                try:
                    texts = [
                        (folder / part.replace("&", "+")).read_text()
                        for part in file.replace("mig+mps", "mig&mps").split("+")
                    ]
                    objects = [each for text in texts for each in documents(text)]
                except yaml.YAMLError as error:
                    print(f"{file}: is no YAML: {str(error)[:100]}", flush=True)
                    continue
                print(f"{file}: {await suite.outcome(objects)}", flush=True)


def specs(folder):
    """Every spec of the copy that has a pod, with the file that it needs beside it."""
    specs_ = []
    for path in sorted(folder.rglob("*.yaml*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or not _PLACES.search(name) or name.startswith("vendor/"):
            continue
        if _PODS.search(path.read_text()):
            beside = [f"{other}+" for end, other in NEEDS.items() if name.endswith(end)]
            specs_.append("".join(beside) + name)
    return specs_


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("driver", choices=COMPONENTS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", nargs="*", help="all, unless some are named; A+B are one spec")
    parser.add_argument("--share", default="", help="the setting of that name")
    parser.add_argument(
        "--nvml", action="store_true", help="with a library that tells of instances"
    )
    asked = parser.parse_args()
    files = asked.files or specs(asked.folder)
    asyncio.run(run(asked.driver, asked.folder, files, asked.share, asked.nvml))


if __name__ == "__main__":
    sys.exit(main())
