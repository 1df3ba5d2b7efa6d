"""Pods that wait because of nodes or of the state of their claims, and a few that do not wait."""

from __future__ import annotations

from tests.cluster.pending.documents import (
    affinity,
    among,
    by_template,
    held,
    init,
    job,
    on,
    port,
    sized,
    tainted,
    with_,
    with_fpgas,
)
from tests.cluster.pending.situation import OWN_UID, situation
from tests.support.cluster_objects import (
    DRIVER,
    claim,
    gpus,
    name,
    node,
    selector,
    slice_,
    taint,
    template,
)

GPUS = slice_(gpus(2))
TOLERANT = [{"operator": "Exists"}]
GONE = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
MEMORY = selector(f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0')
WEB = job("web", ports=[port(8080)])

SITUATIONS = (
    # The node
    situation("Cordoned", node("node-1", cordoned=True), GPUS, claim()),
    situation(
        "Cordoned and tolerated",
        node("node-1", cordoned=True),
        GPUS,
        claim(),
        pod=with_(job(gpu="train"), tolerations=TOLERANT),
    ),
    situation(
        "Not ready",
        tainted("node-1", taint(GONE[1]), taint(GONE[1], "NoExecute"), ready="False"),
        GPUS,
        claim(),
    ),
    situation(
        "Its kubelet is not heard of",
        tainted("node-1", taint(GONE[0]), taint(GONE[0], "NoExecute"), ready="Unknown"),
        GPUS,
        claim(),
    ),
    situation(
        "Its disk is full",
        tainted("node-1", taint("node.kubernetes.io/disk-pressure")),
        GPUS,
        claim(),
    ),
    situation("Tainted", tainted("node-1", taint("team", value="a")), GPUS, claim()),
    situation(
        "Tainted with NoExecute", tainted("node-1", taint("drain", "NoExecute")), GPUS, claim()
    ),
    situation(
        "Tainted as a preference",
        tainted("node-1", taint("old", "PreferNoSchedule")),
        GPUS,
        claim(),
    ),
    situation(
        "Tainted and tolerated",
        tainted("node-1", taint("team", value="a")),
        GPUS,
        claim(),
        pod=with_(job(gpu="train"), tolerations=[{"key": "team", "value": "a"}]),
    ),
    situation(
        "Another value is tolerated",
        tainted("node-1", taint("team", value="a")),
        GPUS,
        claim(),
        pod=with_(job(gpu="train"), tolerations=[{"key": "team", "value": "b"}]),
    ),
    situation(
        "Another effect is tolerated",
        tainted("node-1", taint("drain", "NoExecute")),
        GPUS,
        claim(),
        pod=with_(
            job(gpu="train"),
            tolerations=[{"key": "drain", "operator": "Exists", "effect": "NoSchedule"}],
        ),
    ),
    situation("No node at all", claim(), without_node=True),
    # Selectors
    situation(
        "A label that no node has",
        GPUS,
        claim(),
        pod=with_(job(gpu="train"), nodeSelector={"pool": "training"}),
    ),
    situation(
        "A label with another value",
        node("node-1", pool="batch"),
        GPUS,
        claim(),
        pod=with_(job(gpu="train"), nodeSelector={"pool": "training"}),
    ),
    situation(
        "Affinity to a zone",
        node("node-1", zone="a"),
        GPUS,
        claim(),
        pod=with_(job(gpu="train"), affinity=affinity(among("zone", "In", "b", "c"))),
    ),
    situation(
        "Affinity to a number",
        node("node-1", gpus="4"),
        GPUS,
        claim(),
        pod=with_(job(gpu="train"), affinity=affinity(among("gpus", "Gt", "4"))),
    ),
    situation(
        "Affinity away from a label",
        node("node-1", spot="true"),
        GPUS,
        claim(),
        pod=with_(job(gpu="train"), affinity=affinity(among("spot", "DoesNotExist"))),
    ),
    situation(
        "Affinity that is met",
        node("node-1", gpus="8", zone="a"),
        GPUS,
        claim(),
        pod=with_(
            job(gpu="train"),
            affinity=affinity(among("gpus", "Gt", "4"), among("zone", "NotIn", "b")),
        ),
    ),
    situation(
        "Affinity to a node that is cordoned",
        node("node-1", cordoned=True),
        node("node-2"),
        pod=with_(job(), affinity=affinity(fields=[among("metadata.name", "In", "node-1")])),
    ),
    situation(
        "Affinity to a node that is gone",
        node("node-1"),
        pod=with_(job(), affinity=affinity(fields=[among("metadata.name", "In", "node-9")])),
    ),
    # Resources and ports
    situation(
        "More CPUs than a node has", GPUS, claim(), pod=job(requests={"cpu": "100"}, gpu="train")
    ),
    situation(
        "No CPUs are left",
        on("node-1", job("web", requests={"cpu": "60"})),
        GPUS,
        claim(),
        pod=job(requests={"cpu": "8"}, gpu="train"),
    ),
    situation(
        "CPUs of a pod that has ended",
        on("node-1", job("web", requests={"cpu": "60"}), phase="Succeeded"),
        GPUS,
        claim(),
        pod=job(requests={"cpu": "8"}, gpu="train"),
    ),
    situation(
        "CPUs of a pod that is being deleted",
        on("node-1", with_(job("web", requests={"cpu": "60"}), terminationGracePeriodSeconds=600)),
        pod=job(requests={"cpu": "8"}),
        deleted=("Pod/web",),
    ),
    situation("No memory is left", pod=job(requests={"memory": "513Gi"})),
    situation("CPU and memory are short", pod=job(requests={"cpu": "64500m", "memory": "600Gi"})),
    situation(
        "As many pods as may be",
        sized("node-1", pods="1"),
        on("node-1", job("web")),
        GPUS,
        claim(),
    ),
    situation("No disk of its own", pod=job(requests={"ephemeral-storage": "10Gi"})),
    situation(
        "Too little disk",
        sized("node-1", ephemeral_storage="5Gi"),
        pod=job(requests={"ephemeral-storage": "10Gi"}),
    ),
    situation("No huge pages", pod=job(requests={"hugepages-2Mi": "4Mi", "memory": "1Gi"})),
    situation("An extended resource that nobody has", pod=job(requests={"example.com/fpga": "1"})),
    situation(
        "An extended resource that is used up",
        with_fpgas("2"),
        on("node-1", job("web", requests={"example.com/fpga": "2"})),
        pod=job(requests={"example.com/fpga": "1"}),
    ),
    situation(
        "An init container that is too large",
        pod=with_(job(requests={"cpu": "1"}), initContainers=[init({"cpu": "65"})]),
    ),
    situation(
        "A sidecar that makes it too large",
        pod=with_(
            job(requests={"cpu": "40"}),
            initContainers=[init({"cpu": "30"}, restartPolicy="Always")],
        ),
    ),
    situation(
        "Init containers run before the others",
        pod=with_(job(requests={"cpu": "40"}), initContainers=[init({"cpu": "60"})]),
    ),
    situation(
        "The pod as a whole asks for more than its containers",
        pod=with_(job(requests={"cpu": "1"}), resources={"requests": {"cpu": "65"}}),
    ),
    situation(
        "A node that says nothing of itself",
        node("node-1") | {"status": {"allocatable": {}}},
        pod=job(requests={"cpu": "1"}),
    ),
    situation(
        "A host port that an init container has closed",
        on("node-1", WEB),
        pod=with_(job(), initContainers=[init({}, ports=[port(8080)])]),
    ),
    situation("A host port that is taken", on("node-1", WEB), pod=job(ports=[port(8080)])),
    situation(
        "A host port of one address, taken for all",
        on("node-1", WEB),
        pod=job(ports=[port(8080, hostIP="10.0.0.1")]),
    ),
    situation(
        "A host port of another protocol",
        on("node-1", WEB),
        pod=job(ports=[port(8080, protocol="UDP")]),
    ),
    situation(
        "A host port of another address",
        on("node-1", job("web", ports=[port(8080, hostIP="10.0.0.2")])),
        pod=job(ports=[port(8080, hostIP="10.0.0.1")]),
    ),
    situation(
        "A lower priority could make room",
        on("node-1", with_(job("web", requests={"cpu": "60"}), terminationGracePeriodSeconds=600)),
        pod=with_(job(requests={"cpu": "8"}), priorityClassName="system-cluster-critical"),
    ),
    # The pod
    situation(
        "A scheduling gate",
        GPUS,
        claim(),
        pod=with_(job(gpu="train"), schedulingGates=[{"name": "example.com/quota"}]),
    ),
    situation(
        "Two scheduling gates",
        pod=with_(job(), schedulingGates=[{"name": "example.com/a"}, {"name": "example.com/b"}]),
    ),
    situation("Another scheduler", pod=with_(job(), schedulerName="batch"), waits=True),
    # Its claims
    situation("The class does not exist", GPUS, claim(deviceClassName="gpus.claimd.dev")),
    situation(
        "A class among alternatives does not exist",
        GPUS,
        claim(
            "train",
            {
                "name": "gpus",
                "firstAvailable": [
                    {"name": "a", "deviceClassName": DRIVER},
                    {"name": "b", "deviceClassName": "gone"},
                ],
            },
        ),
    ),
    situation("The claim does not exist", GPUS, waits=True),
    situation("The template does not exist", GPUS, pod=job(gpu="=train"), waits=True),
    situation(
        "No claim is made of the template yet",
        GPUS,
        template("train", claim()),
        pod=job(gpu="=train"),
    ),
    situation(
        "The claim of the template",
        GPUS,
        template("train", claim()),
        pod=job(gpu="=train"),
        after=(by_template("job-gpu-x7k2p", OWN_UID),),
    ),
    situation(
        "The claim was made for another pod of that name",
        GPUS,
        template("train", claim()),
        pod=job(gpu="=train"),
        after=(by_template("job-gpu-x7k2p", "11111111-2222-3333-4444-555555555555"),),
    ),
    situation("The claim is being deleted", GPUS, claim(), deleted=("ResourceClaim/train",)),
    situation(
        "The claim has as many pods as it may have",
        GPUS,
        held("train", name(0), reserved=[f"worker-{index}" for index in range(256)]),
    ),
    situation(
        "The claim has one pod less than it may have",
        GPUS,
        held("train", name(0), reserved=[f"worker-{index}" for index in range(255)]),
    ),
    situation(
        "The claim has its device on a node that is cordoned",
        node("node-1", cordoned=True),
        node("node-2"),
        GPUS,
        held("train", name(0), reserved=["worker-0"]),
    ),
    situation(
        "The claim has its device on a node that is gone",
        node("node-2"),
        held("train", name(0), reserved=["worker-0"]),
    ),
    situation(
        "The claim has its device, and there is room",
        GPUS,
        held("train", name(0), reserved=["worker-0"]),
    ),
    situation(
        "Two claims have devices on two nodes",
        node("node-1"),
        node("node-2"),
        held("train", name(0), reserved=["worker-0"]),
        held("store", name(0), on="node-2", reserved=["worker-0"], pinned="node-2"),
        pod=job(gpu="train", disk="store"),
    ),
    situation(
        "Admin access, and the namespace has lost its label",
        GPUS,
        claim(adminAccess=True),
        labels=("resource.kubernetes.io/admin-access=true",),
    ),
    situation(
        "Admin access by a template, and the namespace has lost its label",
        GPUS,
        template("train", claim(adminAccess=True)),
        pod=job(gpu="=train"),
        labels=("resource.kubernetes.io/admin-access=true",),
    ),
)
