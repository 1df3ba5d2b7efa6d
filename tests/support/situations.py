"""Situations from real clusters in which pods are pending, and the page that is written from them.

`python -m tests.support.situations > docs/explain.md` writes the page from claimd's answers. A test
compares the page with this output. This module itself asserts nothing.
"""

import contextlib
import io
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import yaml

from claimd.tools import cli

from . import alloc_hard
from .cluster_objects import (
    A100,
    DRIVER,
    H100,
    MI300X,
    NUMA,
    ROOT,
    build,
    claim,
    class_,
    container,
    deployment,
    event,
    gpu,
    gpus,
    name,
    node,
    pod,
    request,
    rule,
    selector,
    slice_,
    taint,
    template,
)

ROOT_FOLDER = Path(__file__).resolve().parents[2]
HEAD = """\
# Why is my pod pending

If a pod waits for GPUs, the scheduler only says "cannot allocate all claims". `claimd explain` gives the reasons, with
the number of nodes for each. It says which node comes closest, and what would help there. Then it lists the nodes,
grouped by reason. It decides as the scheduler does, and it only reads:

    claimd explain train                        # a claim or a pod in the namespace default
    claimd explain pod/job -n team-a --node node-3
    claimd explain -A --pending                 # all pods that wait for a node, grouped by cause; -n NS --pending: in one namespace
    claimd explain pod/job --watch              # prints each new answer, until the pod has a node
    claimd explain --dry web.yaml               # objects that do not exist yet: a pod, a workload, a claim or a template
    claimd explain --class gpu.claimd.dev       # which devices a class selects, and why not the others
    claimd explain train -f dump.json -o json   # from files, for programs: every node and device with every reason

It can also answer for a cluster with a small change:

    claimd explain pod/job --without claim/old --without pod/team-b/notebook
    claimd explain pod/job --as-if-free node-3  # as if node-3 had no pods, and no claim had its devices
    claimd explain pod/job --on node-3          # as if the pod had to run on node-3, whatever it selects

claimd finds the cluster as kubectl does (`--kubeconfig`, the files of `KUBECONFIG`, `~/.kube/config`, `--context`).
With `-f` it reads the output of `kubectl get -o yaml` or `-o json` instead: files, a folder of files, or `-` for
standard input. JSON is much faster. `deploy/explain` has the role that a user needs. If the user may not read some
objects, a note in the answer names them. A YAML file may have 4 MiB and 200,000 values, because YAML takes long to
read. Use JSON for a large cluster.

| exit code | it means |
| --- | --- |
| 0 | the pod could run; or it does not wait, because it has its node or its devices |
| 1, 2 | the command failed; the command was used wrongly |
| 3 | pending: no node could run the pod, or it waits for something other than a node. With several pods: at least one of them is pending |
| 4 | unknown: not decided in time |

The text names at most three nodes for each reason. Nodes with the same devices in the same state are examined once, so
5,000 nodes take one or two seconds and one screen. `-o wide` or `--all` lists every node. `-o json` has everything; a
node that is `like` another node has only the facts that hold for both nodes (with `--all` each node has its own). The
`version` of the JSON is `claimd.dev/explain/v2`, and it changes if a field is removed or gets another meaning. Start
with the fields `verdict`, `line`, `groups` and `nodes`.

Before devices, claimd checks what else keeps a pod from a node:

- of the pod: scheduling gates, and claims that are missing, being deleted, or allocated on another node
- of the node: whether it is cordoned or tainted, whether the pod selects it, and whether it has the CPU, memory, ports
  and other resources that the pod requests
- of the other pods: affinity, anti-affinity and topology spread

If a pod has its node, the first line is the kubelet's reason why it does not run. Below it are the parts of the pod
that the reason is about: the command, the image, the restarts and the times of a container, a probe that fails, the
variables of a missing ConfigMap or Secret, the source of a volume. The values of variables and of a probe's headers
are never shown.

claimd does not check volumes; if the pod has volumes, the answer says so. If pods with lower priority run, a note says
which of them the scheduler would evict for this pod, or why it evicts none (disruption budgets are not checked). The
answer also shows the scheduler's own message from the pod's condition and Events, and where it differs. If a claim is
missing or being deleted, the scheduler gives no message at all. `--dry` takes manifests as people write them: claimd
replaces a Deployment, a Job or another workload by the pods that it creates, accepts numbers as quantities, and takes
limits as requests.

An answer takes at most ten seconds of processor time (`--timeout`), and at most three times as long on a busy machine.
The scheduler itself spends at most ten seconds on each node. If that is not enough, it says "timed out trying to
allocate devices" and the pod stays pending.

The rest of this page has situations from real clusters with claimd's output. The tests check this output.
"""


@dataclass(frozen=True, kw_only=True)
class Situation:
    title: str
    objects: tuple
    words: tuple = ("train",)
    dry: dict | None = None  # the content of the file for --dry


MEMORY = selector(f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0')
VENDOR = selector(f'device.attributes["{DRIVER}"].vendor == "amd"')
MODEL = selector(f'device.attributes["{DRIVER}"].productName.contains("H200")')
MISSPELT = selector(f'device.attributes["{DRIVER}"].vendr == "nvidia"')
VENDOR_OF_ALL = selector(f'device.attributes["{DRIVER}"].vendor == "nvidia"')
TRAIN = [{"name": "gpu", "resourceClaimName": "train"}]
COUNTERS = [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}, "slices": {"value": "7"}}}]


def situation(title, *objects, **more):
    return Situation(title=title, objects=(class_(), *objects), **more)


def slices_of_one_gpu(*wanted):
    """Returns partitions that share the counters of one GPU."""
    return [
        {
            "name": f"gpu-0-{slices}g-{index}",
            "attributes": {"profile": {"string": f"{slices}g.{slices * 10}gb"}},
            "consumesCounters": [
                {
                    "counterSet": "gpu-0",
                    "counters": {"slices": {"value": str(slices)}, "memory": {"value": memory}},
                }
            ],
        }
        for index, (slices, memory) in enumerate(wanted)
    ]


def parts_of_a_gpu():
    """Yields slices with parts of a GPU that two counters limit.

    Any twelve parts fit by memory, and any twelve by cores, but no twelve fit by both.
    """
    slices = alloc_hard.opposing(unit=3)["slices"]
    devices = slices[0]["spec"]["devices"]
    counters = slices[1]["spec"]["sharedCounters"]
    yield slice_(devices, count=2)
    yield slice_([], count=2, called="counters", sharedCounters=counters)


def shared(index, **policy):
    device = gpu(index, allowMultipleAllocations=True)
    device["capacity"]["memory"] |= {"requestPolicy": policy} if policy else {}
    return device


def sharer(called, memory):
    claim_ = claim(called, capacity={"requests": {"memory": memory}})
    result = {
        "request": "gpus",
        "driver": DRIVER,
        "pool": "node-1",
        "device": name(0),
        "shareID": called,
    }
    result["consumedCapacity"] = {"memory": memory}
    return claim_ | {"status": {"allocation": {"devices": {"results": [result]}}}}


def gang(count):
    """A PodGroup whose pods are placed together, or not at all."""
    spec = {"schedulingPolicy": {"gang": {"minCount": count}}}
    return build("PodGroup", "training", spec, api="scheduling.k8s.io/v1beta1")


def made_of(called):
    """Returns the `resourceClaims` of a pod with a claim from a template."""
    return [{"name": "gpus", "resourceClaimTemplateName": called}]


def getting_ready(allocated):
    """Returns the claim with a device that its driver still prepares."""
    status = allocated["status"]
    status["allocation"]["allocationTimestamp"] = "2026-11-27T10:00:00Z"
    names = {"bindingConditions": ["claimd.dev/Prepared"]}
    names["bindingFailureConditions"] = ["claimd.dev/PrepareFailed"]
    condition = {"type": "claimd.dev/Prepared", "status": "False", "reason": "Preparing"}
    condition["message"] = "it is being bound to vfio-pci"
    for result in status["allocation"]["devices"]["results"]:
        result.update(names)
        device = {key: result[key] for key in ("driver", "pool", "device")}
        status["devices"] = [device | {"conditions": [condition]}]
    return allocated


def said(waiting, message):
    """Returns the pod with the scheduler's message in its condition."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return waiting | {"status": {"conditions": [condition | {"message": message}]}}


def waiting_pod():
    """Returns the pod of this name with a uid, so that a claim can be reserved for it."""
    waiting = pod(resourceClaims=TRAIN)
    waiting["metadata"]["uid"] = waiting["metadata"]["name"]
    return waiting


def crashing(placed, script):
    """Returns the pod with a container whose script has ended four times."""
    spec = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}
    ended = {
        "exitCode": 3,
        "reason": "Error",
        "startedAt": "2026-11-27T07:01:11Z",
        "finishedAt": "2026-11-27T07:01:12Z",
    }
    status = {
        "name": "main",
        "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    return placed | {
        "spec": placed["spec"] | {"containers": [spec]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }


def unnamed(device):
    """Removes the vendor from a device and returns the device."""
    del device["attributes"]["vendor"]
    return device


def fleet(count):
    """Yields nodes with eight GPUs; except on the last node, claims hold all but two or three."""
    for index in range(count):
        yield slice_(gpus(8), node=f"node-{index}")
        if index + 1 < count:
            yield claim(
                f"job-{index}", held=[name(n) for n in range(6 - index % 2)], on=f"node-{index}"
            )


SITUATIONS = (
    situation("It fits", slice_(gpus(4)), claim(count=2)),
    situation(
        "Everything is taken",
        slice_(gpus(2)),
        claim(),
        claim("notebook-a", held=[name(0)]),
        claim("notebook-b", held=[name(1)]),
    ),
    situation("Not enough memory", slice_(gpus(4, A100)), claim(selectors=[MEMORY])),
    situation(
        "A mixed fleet",
        slice_(gpus(8), node="node-1"),
        slice_(gpus(8, MI300X), node="node-2"),
        claim("other", held=[name(index) for index in range(7)], on="node-2"),
        claim(count=2, selectors=[VENDOR]),
    ),
    situation(
        "A model that nobody has",
        slice_([*gpus(2), gpu(2, A100)]),
        claim(selectors=[MODEL, MEMORY]),
    ),
    situation("An attribute that is not there", slice_(gpus(2)), claim(selectors=[MISSPELT])),
    situation(
        "Four GPUs under one PCIe root",
        slice_(gpus(8)),
        claim("train-7", held=[name(0), name(1)]),
        claim("train-8", held=[name(5)]),
        claim(count=4, constraints=[{"matchAttribute": ROOT}]),
    ),
    situation(
        "Each on a NUMA node of its own",
        slice_(gpus(8)),
        claim(count=3, constraints=[{"distinctAttribute": NUMA}]),
    ),
    situation(
        "A GPU that is gone from the bus",
        slice_([gpu(0, taints=[taint("claimd.dev/lost", "NoExecute")]), gpu(1)]),
        claim(count=2),
    ),
    situation(
        "An administrator has tainted a node's GPUs",
        slice_(gpus(2)),
        rule("maintenance", "maintenance", driver=DRIVER, pool="node-1"),
        claim(),
    ),
    situation("Slices are missing", slice_(gpus(4), count=2), claim()),
    situation(
        "Two drivers fight about a pool",
        slice_([gpu(0), gpu(1)], count=2, called="a"),
        slice_([gpu(1)], count=2, called="b"),
        claim(),
    ),
    situation("No driver runs on the node", node("node-1"), claim()),
    situation(
        "The class does not exist", slice_(gpus(1)), claim(deviceClassName="gpus.claimd.dev")
    ),
    situation(
        "All of them, but one is held",
        slice_(gpus(4)),
        claim("notebook", held=[name(2)]),
        claim(allocationMode="All"),
    ),
    situation("More than a claim may have", slice_(gpus(40)), claim(count=40)),
    situation(
        "A list of alternatives, none of which is free",
        slice_([gpu(0), gpu(1, A100)]),
        claim("notebook", held=[name(1)]),
        claim(
            "train",
            {
                "name": "gpus",
                "firstAvailable": [
                    {
                        "name": "two-large",
                        "deviceClassName": DRIVER,
                        "count": 2,
                        "selectors": [MEMORY],
                    },
                    {"name": "any-amd", "deviceClassName": DRIVER, "selectors": [VENDOR]},
                ],
            },
        ),
    ),
    situation(
        "Partitions that share one GPU",
        slice_(slices_of_one_gpu((4, "40Gi"), (3, "40Gi"), (2, "20Gi")), count=2),
        slice_([], count=2, called="counters", sharedCounters=COUNTERS),
        claim("inference", held=["gpu-0-4g-0"]),
        claim(count=2),
    ),
    situation(
        "A share of a GPU's memory",
        slice_([shared(0)]),
        sharer("notebook-a", "32Gi"),
        sharer("notebook-b", "24Gi"),
        claim(capacity={"requests": {"memory": "40Gi"}}),
    ),
    situation(
        "A share that the driver does not cut",
        slice_([shared(0, default="10Gi", validValues=["10Gi", "20Gi", "40Gi"])]),
        claim(capacity={"requests": {"memory": "60Gi"}}),
    ),
    situation(
        "Each request would fit, together they do not",
        slice_([gpu(0), gpu(1, A100)]),
        claim("train", request("large", selectors=[MEMORY]), request("any", count=2)),
    ),
    situation(
        "A pod with a claim template",
        slice_([gpu(0), gpu(1)]),
        template("two-amd", claim(count=2, selectors=[VENDOR])),
        pod(resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "two-amd"}]),
        words=("job",),
    ),
    Situation(
        title="A pod with an extended resource",
        objects=(
            class_(extendedResourceName="claimd.dev/gpu"),
            slice_([gpu(0), gpu(1)]),
            claim("notebook", held=[name(0)]),
            pod(containers=[{"name": "main", "resources": {"requests": {"claimd.dev/gpu": "2"}}}]),
        ),
        words=("pod/job",),
    ),
    situation(
        "A pod that may run on some nodes only",
        node("node-1", pool="batch"),
        node("node-2", pool="web"),
        slice_(gpus(1), node="node-1"),
        slice_(gpus(8), node="node-2"),
        claim("notebook", held=[name(0)]),
        claim("train"),
        pod(
            nodeSelector={"pool": "batch"},
            resourceClaims=[{"name": "gpu", "resourceClaimName": "train"}],
        ),
        words=("job",),
    ),
    situation("A large cluster", *fleet(40), claim(count=4)),
    situation(
        "Devices are free, and the nodes are not",
        node("node-1", cordoned=True),
        node("node-2", tainted="dedicated=training:NoSchedule"),
        node("node-3", tainted="node.kubernetes.io/not-ready:NoSchedule"),
        *(slice_(gpus(2), node=f"node-{number}") for number in range(1, 4)),
        claim(),
        pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "train"}]),
        words=("pod/job",),
    ),
    situation(
        "No CPU is left beside the GPUs",
        node("node-1"),
        slice_(gpus(8)),
        pod("web", nodeName="node-1", containers=[container(cpu="60")]),
        claim(),
        pod(
            resourceClaims=[{"name": "gpu", "resourceClaimName": "train"}],
            containers=[container(cpu="8", memory="1Ti")],
        ),
        words=("pod/job",),
    ),
    situation(
        "A label that no node has",
        node("node-1", pool="batch"),
        node("node-2"),
        slice_(gpus(1)),
        claim(),
        pod(
            nodeSelector={"pool": "training"},
            resourceClaims=[{"name": "gpu", "resourceClaimName": "train"}],
        ),
        words=("pod/job",),
    ),
    situation(
        "The claim has its devices on another node",
        node("node-1", cordoned=True),
        node("node-2"),
        slice_(gpus(1)),
        claim(held=[name(0)], reserved=["trainer-0"], pinned="node-1"),
        pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "train"}]),
        words=("pod/job",),
    ),
    situation(
        "Its GPU failed on one node, and gets ready on another",
        node("node-1"),
        node("node-2"),
        slice_([gpu(0, taints=[taint("claimd.dev/prepare-failed")])]),
        slice_(gpus(1), node="node-2"),
        getting_ready(claim(held=[name(0)], on="node-2", reserved=["job"], pinned="node-2")),
        waiting_pod(),
        event(
            pod(),
            "FailedScheduling",
            'running PreBind plugin "DynamicResources": device binding failed: claim=train, '
            f'reason=PrepareFailed, message="{name(0)}: its IOMMU group has other devices"',
            when="2026-11-27T09:59:58Z",
        ),
        words=("pod/job",),
    ),
    situation(
        "A scheduling gate",
        node("node-1"),
        slice_(gpus(1)),
        claim(),
        pod(
            schedulingGates=[{"name": "example.com/quota"}],
            resourceClaims=[{"name": "gpu", "resourceClaimName": "train"}],
        ),
        words=("pod/job",),
    ),
    situation(
        "The claim is being deleted",
        node("node-1"),
        slice_(gpus(1)),
        claim(deleted="2026-11-22T10:00:00Z"),
        pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "train"}]),
        words=("pod/job",),
    ),
    situation(
        "A GPU is free on a node that the pod may not use",
        node("node-1", pool="batch"),
        node("node-2", pool="web"),
        slice_(gpus(1), node="node-1"),
        slice_(gpus(1), node="node-2"),
        claim("notebook", held=[name(0)]),
        claim(),
        pod(nodeSelector={"pool": "batch"}, resourceClaims=TRAIN),
        words=("pod/job", "--on", "node-2"),
    ),
    situation(
        "What if another claim were gone",
        slice_(gpus(2)),
        claim("notebook-a", held=[name(0)]),
        claim("notebook-b", held=[name(1)]),
        claim(),
        words=("train", "--without", "claim/notebook-a"),
    ),
    situation(
        "What if a node were free",
        *fleet(3),
        claim("last", held=[name(4)], on="node-2"),
        claim(count=8),
        words=("train", "--as-if-free", "node-1"),
    ),
    situation(
        "Every pod that waits",
        node("node-1"),
        node("node-2", cordoned=True),
        slice_(gpus(2), node="node-1"),
        slice_(gpus(2), node="node-2"),
        claim("notebook", held=[name(0)]),
        template("one", claim()),
        template("two", claim(count=2)),
        *(pod(f"web-{number}", resourceClaims=made_of("two")) for number in range(1, 6)),
        pod("small", resourceClaims=made_of("one")),
        pod("huge", containers=[container(cpu="96")]),
        pod("lost", resourceClaims=made_of("three")),
        words=("-A", "--pending"),
    ),
    situation(
        "Its group is not there",
        node("node-1"),
        slice_(gpus(2)),
        claim(),
        pod(resourceClaims=TRAIN, schedulingGroup={"podGroupName": "training"}),
        words=("pod/job",),
    ),
    situation(
        "A gang that is short of pods",
        node("node-1"),
        slice_(gpus(2)),
        claim(),
        gang(4),
        pod(resourceClaims=TRAIN, schedulingGroup={"podGroupName": "training"}),
        words=("pod/job",),
    ),
    situation(
        "A gang that does not fit as a whole",
        node("node-1"),
        slice_(gpus(2)),
        *(claim(f"gpu-{number}") for number in range(1, 4)),
        gang(3),
        *(
            pod(
                f"worker-{number}",
                resourceClaims=[{"name": "gpu", "resourceClaimName": f"gpu-{number}"}],
                schedulingGroup={"podGroupName": "training"},
            )
            for number in range(1, 4)
        ),
        words=("pod/worker-1",),
    ),
    situation(
        "The scheduler says it, too",
        node("node-1"),
        node("node-2", cordoned=True),
        slice_(gpus(1), node="node-1"),
        slice_(gpus(1), node="node-2"),
        claim("notebook", held=[name(0)]),
        claim(),
        said(
            pod(resourceClaims=TRAIN),
            "0/2 nodes are available: 1 cannot allocate all claims, 1 node(s) were unschedulable.",
        ),
        words=("pod/job",),
    ),
    situation(
        "The scheduler has a reason that is not looked at here",
        node("node-1"),
        slice_(gpus(1)),
        claim(),
        said(
            pod(
                resourceClaims=TRAIN,
                volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            ),
            "0/1 nodes are available: 1 node(s) had volume node affinity conflict.",
        ),
        words=("pod/job",),
    ),
    situation(
        "It has its node, and crashes there",
        node("node-1"),
        crashing(pod(nodeName="node-1"), "exit 3"),
        words=("pod/job",),
    ),
    situation(
        "A selector that fails on one node ends the search on all",
        slice_(gpus(1), node="node-1"),
        slice_([unnamed(gpu(0))], node="node-2"),
        claim(selectors=[VENDOR_OF_ALL]),
    ),
    situation(
        "More combinations than there is time for",
        *parts_of_a_gpu(),
        claim(count=12),
        words=("train", "--timeout", "0.5"),
    ),
    Situation(
        title="A Deployment, before it is created",
        objects=(
            class_(extendedResourceName="nvidia.com/gpu"),
            node("node-1"),
            slice_(gpus(2)),
            claim("notebook", held=[name(0)]),
        ),
        words=("--dry", "web.yaml"),
        dry=deployment("web", replicas=3, limits={"cpu": 4, "nvidia.com/gpu": 2}),
    ),
    situation(
        "Before it is created",
        slice_([gpu(0, H100), gpu(1, A100)]),
        words=("--dry", "claim.yaml"),
        dry=claim("tomorrow", count=2, selectors=[MEMORY]),
    ),
    situation(
        "What a class has",
        slice_([gpu(0), gpu(1), gpu(2, MI300X)]),
        class_(
            "nvidia.gpu.claimd.dev",
            f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].vendor == "nvidia"',
        ),
        claim("notebook", held=[name(1)]),
        words=("--class", "nvidia.gpu.claimd.dev"),
    ),
)


def say(situation, folder, *more):
    """Runs `claimd explain`; returns its exit code, its output and its errors."""
    dump = folder / "dump.yaml"
    dump.write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": list(situation.objects)})
    )
    if situation.dry:
        (folder / situation.words[-1]).write_text(yaml.safe_dump(situation.dry, sort_keys=False))
    words = [str(folder / word) if word.endswith(".yaml") else word for word in situation.words]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(["explain", *words, "-f", str(dump), *more])
    return code, out.getvalue(), err.getvalue()


def document():
    parts = [HEAD]
    with tempfile.TemporaryDirectory() as folder:
        for situation in SITUATIONS:
            _, out, err = say(situation, Path(folder))
            command = f"$ claimd explain {' '.join(situation.words)}\n"
            if situation.dry and situation.dry["kind"] != "ResourceClaim":
                written = yaml.safe_dump(situation.dry, sort_keys=False)
                command = f"$ cat {situation.words[-1]}\n{written}{command}"
            parts.append(f"## {situation.title}\n\n```\n{command}{out}{err}```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(document())
