"""A large cluster as `kubectl get -o json` would write it: nodes, their slices, claims and pods.

`python -m tests.support.large_cluster FILE` writes it. Of the nodes most have too few free GPUs,
some are cordoned or tainted, and some are of another model, so that an answer has several groups.
"""

import argparse
import json
import uuid
from pathlib import Path

from tests.support import cluster_objects
from tests.support.cluster_objects import DRIVER

NODES = 5000
GPUS = 8
_UIDS = uuid.UUID("6f1c1d7e-0000-4000-8000-000000000000").int


def gpu(node, index):
    """With the attributes that `claimd run` publishes, some of which no other GPU has."""
    model = cluster_objects.A100 if node % 10 == 3 else cluster_objects.H100
    device = cluster_objects.gpu(index, model)
    device["attributes"] |= {
        "type": {"string": "gpu"},
        "vendorID": {"string": "0x10de"},
        "deviceID": {"string": "0x2330"},
        "family": {"string": "GH100"},
        "architecture": {"string": "Hopper"},
        "driver": {"string": "nvidia"},
        "driverVersion": {"version": "570.124.6"},
        "uuid": {"string": f"GPU-{uuid.UUID(int=_UIDS + node * GPUS + index)}"},
        "resource.kubernetes.io/pciBusID": {"string": f"0000:{0x41 + index:02x}:00.0"},
        "linkWidth": {"int": 16},
        "linkSpeed": {"int": 32000},
    }
    device["capacity"]["memory"]["value"] = model["memory"]
    return device


def node(number):
    """As a kubelet reports one, but for its images."""
    name = f"node-{number}"
    cordoned = number % 50 == 7
    tainted = "dedicated=training:NoSchedule" if number % 25 == 4 else ""
    node_ = cluster_objects.node(name, cordoned=cordoned, tainted=tainted, pool="batch")
    conditions = ("MemoryPressure", "DiskPressure", "PIDPressure")
    node_["status"]["conditions"] = [
        *({"type": kind, "status": "False", "reason": "Fine"} for kind in conditions),
        {"type": "Ready", "status": "True", "reason": "KubeletReady"},
    ]
    node_["status"]["nodeInfo"] = {
        "kernelVersion": "6.8.0-64-generic",
        "osImage": "Ubuntu 24.04.2 LTS",
        "containerRuntimeVersion": "containerd://2.0.5",
        "kubeletVersion": "v1.34.1",
    }
    return node_


def documents(nodes=NODES):
    """Every object, in the order in which `kubectl get` would list the kinds."""
    yield cluster_objects.class_()
    for number in range(nodes):
        yield node(number)
    for number in range(nodes):
        name = f"node-{number}"
        yield cluster_objects.slice_([gpu(number, index) for index in range(GPUS)], node=name)
    for number in range(nodes):
        held = [cluster_objects.name(index) for index in range(5 + number % 3)]
        on = f"node-{number}"
        yield cluster_objects.claim(
            f"job-{number}", held=held, on=on, pinned=on, reserved=[f"job-{number}"]
        )
        reference = [{"name": "gpus", "resourceClaimName": f"job-{number}"}]
        pod = cluster_objects.pod(
            f"job-{number}",
            nodeName=on,
            resourceClaims=reference,
            containers=[cluster_objects.container(cpu="32", memory="256Gi")],
        )
        pod["status"] = {"phase": "Running"}
        yield pod
    large = cluster_objects.selector(
        f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0'
    )
    yield cluster_objects.claim(count=4, selectors=[large])
    yield cluster_objects.pod(
        resourceClaims=[{"name": "gpus", "resourceClaimName": "train"}],
        containers=[cluster_objects.container(cpu="8", memory="64Gi")],
    )


def write(path: Path, nodes=NODES):
    """One List without line breaks."""
    with path.open("w") as file:
        file.write('{"apiVersion":"v1","kind":"List","items":[')
        for index, document in enumerate(documents(nodes)):
            file.write("," if index else "")
            file.write(json.dumps(document, separators=(",", ":")))
        file.write("]}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--nodes", type=int, default=NODES)
    arguments = parser.parse_args()
    write(arguments.file, arguments.nodes)
