"""Pods that wait because of devices, or for reasons that claimd ignores, and a few others."""

from __future__ import annotations

from tests.cluster.pending.documents import (
    COUNTERS,
    Object,
    among,
    held,
    job,
    labelled,
    near,
    nic,
    nic_class,
    nics,
    on,
    parts,
    puzzle,
    request_of_all,
    shared,
    sharer,
    sized,
    tainted,
    watching,
    with_,
    with_plugin,
)
from tests.cluster.pending.situation import situation
from tests.support.cluster_objects import (
    A100,
    DRIVER,
    H100,
    NUMA,
    ROOT,
    build,
    claim,
    class_,
    gpu,
    gpus,
    name,
    node,
    request,
    rule,
    selector,
    slice_,
    taint,
)

GPUS = slice_(gpus(2))
TOLERANT = [{"operator": "Exists"}]
GONE = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
MEMORY = selector(f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0')
ALTERNATIVES: list[Object] = [
    {"name": "two", "deviceClassName": DRIVER, "count": 2, "selectors": [MEMORY]},
    {"name": "one", "deviceClassName": DRIVER, "selectors": [MEMORY]},
]
EXTENDED = class_(extendedResourceName="claimd.dev/gpu")

SITUATIONS = (
    # Devices
    situation("No driver publishes devices", claim()),
    situation(
        "Devices are on another node", node("node-1"), slice_(gpus(1), node="node-2"), claim()
    ),
    situation("Everything is taken", GPUS, claim(), held("a", name(0)), held("b", name(1))),
    situation("Slices of the pool are missing", slice_(gpus(2), count=2), claim()),
    situation(
        "All devices, and slices of the pool are missing",
        slice_(gpus(2), count=2),
        claim("train", request_of_all()),
    ),
    situation("More devices than there are", GPUS, claim(count=3)),
    situation("More devices than a claim may have", slice_(gpus(40)), claim(count=40)),
    situation(
        "All devices, and one is held",
        slice_(gpus(3)),
        held("notebook", name(2)),
        claim("train", request_of_all()),
    ),
    situation("All devices, and there are none", slice_([]), claim("train", request_of_all())),
    situation(
        "A selector that is false",
        slice_(gpus(2, A100)),
        claim(selectors=[MEMORY]),
    ),
    situation(
        "A selector that fails",
        GPUS,
        claim(selectors=[selector(f'device.attributes["{DRIVER}"].vendr == "nvidia"')]),
    ),
    situation(
        "A selector of the class that fails",
        class_(DRIVER, f'device.attributes["{DRIVER}"].vendr == "nvidia"'),
        GPUS,
        claim(),
    ),
    situation(
        "A selector that fails on one of two nodes",
        node("node-1"),
        node("node-2"),
        slice_([{"name": "other"}]),
        slice_(gpus(1), node="node-2"),
        claim(selectors=[selector(f'device.attributes["{DRIVER}"].vendor == "nvidia"')]),
    ),
    situation(
        "A tainted device",
        slice_([gpu(0, taints=[taint("claimd.dev/lost", "NoExecute")])]),
        claim(),
    ),
    situation(
        "A tainted device that is tolerated",
        slice_([gpu(0, taints=[taint("claimd.dev/hot")])]),
        claim(tolerations=[{"key": "claimd.dev/hot", "operator": "Exists"}]),
    ),
    situation(
        "A taint without effect",
        slice_([gpu(0, taints=[taint("claimd.dev/note", "None")])]),
        claim(),
    ),
    situation(
        "A rule taints the devices",
        GPUS,
        rule("maintenance", "maintenance", driver=DRIVER, pool="node-1"),
        claim(),
    ),
    situation(
        "A rule taints the devices of another pool",
        GPUS,
        rule("maintenance", "maintenance", driver=DRIVER, pool="node-2"),
        claim(),
    ),
    situation(
        "Four devices under one root",
        slice_(gpus(8)),
        held("a", name(0), name(1)),
        held("b", name(5)),
        claim(count=4, constraints=[{"matchAttribute": ROOT}]),
    ),
    situation(
        "A GPU and a NIC under one root",
        nic_class(),
        class_(),
        slice_(gpus(4, per_root=2)),
        nics(nic(0, "pci0000:90"), nic(1, "pci0000:91")),
        claim(
            "train",
            request("gpu"),
            request("nic", deviceClassName="nic"),
            constraints=[{"matchAttribute": ROOT, "requests": ["gpu", "nic"]}],
        ),
    ),
    situation(
        "Each on a NUMA node of its own",
        slice_(gpus(8)),
        claim(count=3, constraints=[{"distinctAttribute": NUMA}]),
    ),
    situation(
        "Counters are used up",
        slice_(parts(4, 3, 2), count=2),
        slice_([], count=2, called="counters", sharedCounters=COUNTERS),
        held("inference", "part-0"),
        claim(count=2),
    ),
    situation(
        "Counters are enough",
        slice_(parts(4, 3, 2), count=2),
        slice_([], count=2, called="counters", sharedCounters=COUNTERS),
        held("inference", "part-0"),
        claim(),
    ),
    situation(
        "No share is left",
        slice_([shared()]),
        sharer("notebook", "60Gi"),
        claim(capacity={"requests": {"memory": "40Gi"}}),
    ),
    situation(
        "A share is left",
        slice_([shared()]),
        sharer("notebook", "40Gi"),
        claim(capacity={"requests": {"memory": "40Gi"}}),
    ),
    situation(
        "A share that is not cut",
        slice_([shared(default="10Gi", validValues=["10Gi", "20Gi", "40Gi"])]),
        claim(capacity={"requests": {"memory": "60Gi"}}),
    ),
    situation(
        "A capacity that no device has",
        GPUS,
        claim(capacity={"requests": {"bandwidth": "1"}}),
    ),
    situation(
        "More capacity than a device has", GPUS, claim(capacity={"requests": {"memory": "90Gi"}})
    ),
    situation(
        "No alternative is free",
        slice_([gpu(0, H100), gpu(1, A100)]),
        held("notebook", name(0)),
        claim("train", {"name": "gpus", "firstAvailable": ALTERNATIVES}),
    ),
    situation(
        "The second alternative is free",
        slice_([gpu(0, H100), gpu(1, A100)]),
        claim("train", {"name": "gpus", "firstAvailable": ALTERNATIVES}),
    ),
    situation(
        "Each request would fit alone",
        slice_([gpu(0, H100), gpu(1, A100)]),
        claim("train", request("large", selectors=[MEMORY]), request("any", count=2)),
    ),
    situation(
        "Each claim would fit alone",
        GPUS,
        claim("train", count=2),
        claim("show"),
        pod=job(gpu="train", screen="show"),
    ),
    situation(
        "Two drivers, one of which has nothing",
        nic_class(),
        class_(),
        GPUS,
        claim("train", request("gpu"), request("nic", deviceClassName="nic")),
    ),
    situation(
        "An extended resource of a class, used up",
        EXTENDED,
        GPUS,
        held("notebook", name(0)),
        pod=job(requests={"claimd.dev/gpu": "2"}),
    ),
    situation(
        "An extended resource of a class", EXTENDED, GPUS, pod=job(requests={"claimd.dev/gpu": "2"})
    ),
    situation(
        "The extended resource by the class's name",
        GPUS,
        pod=job(requests={f"deviceclass.resource.kubernetes.io/{DRIVER}": "3"}),
    ),
    situation(
        "An extended resource of a class and of a device plugin",
        with_plugin("1"),
        EXTENDED,
        GPUS,
        pod=job(requests={"claimd.dev/gpu": "2"}),
    ),
    situation(
        "Devices of the network for some nodes",
        node("node-1", zone="a"),
        slice_(
            gpus(1),
            node=None,
            nodeSelector={"nodeSelectorTerms": [{"matchExpressions": [among("zone", "In", "b")]}]},
            pool={"name": "fabric", "generation": 1, "resourceSliceCount": 1},
            called="fabric",
        ),
        claim(),
    ),
    situation(
        "Devices of the network for all nodes",
        slice_(
            gpus(1),
            node=None,
            allNodes=True,
            pool={"name": "fabric", "generation": 1, "resourceSliceCount": 1},
            called="fabric",
        ),
        claim(),
    ),
    situation(
        "A device that somebody watches",
        slice_(gpus(1)),
        watching("watch", name(0)),
        claim(),
        labels=("resource.kubernetes.io/admin-access=true",),
    ),
    situation(
        "A different reason on each node",
        node("node-1", cordoned=True),
        tainted("node-2", taint("team", value="a")),
        sized("node-3", cpu="2"),
        node("node-4"),
        tainted("node-5", taint(GONE[1]), taint(GONE[1], "NoExecute"), ready="False"),
        *(slice_(gpus(1), node=f"node-{number}") for number in (1, 2, 3, 5)),
        claim(),
        pod=job(requests={"cpu": "4"}, gpu="train"),
    ),
    situation("More combinations than there is time for", *puzzle(), seconds=40.0),
    # Reasons that claimd ignores
    situation(
        "Far from the pods like it",
        on("node-1", labelled(job("web"), app="web")),
        pod=with_(
            labelled(job(), app="web"),
            affinity=near("podAntiAffinity", "kubernetes.io/hostname", app="web"),
        ),
    ),
    situation(
        "Another pod keeps it away",
        on(
            "node-1",
            with_(
                job("web"), affinity=near("podAntiAffinity", "kubernetes.io/hostname", app="job")
            ),
        ),
        pod=labelled(job(), app="job"),
    ),
    situation(
        "Near to pods that are not there",
        pod=with_(job(), affinity=near("podAffinity", "kubernetes.io/hostname", app="web")),
    ),
    situation(
        "Spread over zones",
        node("node-1"),
        pod=with_(
            job(),
            topologySpreadConstraints=[
                {
                    "maxSkew": 1,
                    "topologyKey": "zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {},
                }
            ],
        ),
    ),
    situation(
        "A volume that is not there",
        pod=with_(
            job(), volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        ),
    ),
    situation(
        "A volume that nobody has made",
        build(
            "PersistentVolumeClaim",
            "data",
            {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "",
                "resources": {"requests": {"storage": "1Gi"}},
            },
            api="v1",
        ),
        pod=with_(
            job(), volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        ),
    ),
    # While the scheduler waits for this device, it counts it as allocated. So this situation is last.
    situation(
        "A device has to get ready first",
        slice_([gpu(0, bindingConditions=["Attached"], bindingFailureConditions=["Broken"])]),
        claim(),
        waits=True,
    ),
)
