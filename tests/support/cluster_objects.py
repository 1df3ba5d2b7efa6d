"""The objects of a small cluster in a few words, as `kubectl get -o yaml` would write them. Plain
data.
"""

DRIVER = "gpu.claimd.dev"
API = "resource.k8s.io/v1"
ROOT = "resource.kubernetes.io/pcieRoot"
NUMA = "resource.kubernetes.io/numaNode"
H100 = {"vendor": "nvidia", "productName": "NVIDIA H100 80GB HBM3", "memory": "80Gi"}
A100 = {"vendor": "nvidia", "productName": "NVIDIA A100-SXM4-40GB", "memory": "40Gi"}
MI300X = {"vendor": "amd", "productName": "AMD Instinct MI300X OAM", "memory": "192Gi"}


def gpu(index, model=H100, per_root=4, **more):
    """The index-th GPU of a node, `per_root` of them under each root."""
    bus = 0x41 + index
    return {
        "name": f"gpu-0000-{bus:02x}-00-0",
        "attributes": {
            "vendor": {"string": model["vendor"]},
            "productName": {"string": model["productName"]},
            ROOT: {"string": f"pci0000:{0x40 + index // per_root * 0x10:02x}"},
            NUMA: {"int": index // per_root},
        },
        "capacity": {"memory": {"value": model["memory"]}},
        **more,
    }


def name(index):
    return gpu(index)["name"]


def gpus(count, model=H100, **more):
    return [gpu(index, model, **more) for index in range(count)]


def build(kind, called, spec, api=API, namespace="default"):
    metadata = {"name": called} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


def slice_(devices, node="node-1", count=1, called="", **spec):
    pool = {"name": node, "generation": 1, "resourceSliceCount": count}
    where = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": list(devices)}
    return build("ResourceSlice", called or f"00000-{DRIVER}-{node}", where | spec, namespace="")


def node(called, cordoned=False, tainted="", **labels):
    """A node of 64 CPUs and 512 GiB; `tainted` as kubectl writes a taint."""
    spec = {"unschedulable": True} if cordoned else {}
    if tainted:
        name, _, effect = tainted.rpartition(":")
        key, _, value = name.partition("=")
        spec["taints"] = [taint(key, effect, value)]
    document = build("Node", called, spec, api="v1", namespace="")
    document["metadata"]["labels"] = {"kubernetes.io/hostname": called} | labels
    document["status"] = {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110"}}
    return document


def selector(expression):
    return {"cel": {"expression": expression}}


def class_(called=DRIVER, *expressions, **spec):
    chosen = [
        selector(expression) for expression in expressions or ('device.driver == "gpu.claimd.dev"',)
    ]
    return build("DeviceClass", called, {"selectors": chosen} | spec, namespace="")


def request(called="gpus", **exactly):
    return {
        "name": called,
        "exactly": {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1}
        | exactly,
    }


def claim(
    called="train",
    *requests,
    held=(),
    on="node-1",
    constraints=(),
    pinned="",
    reserved=(),
    deleted="",
    **exactly,
):
    """One request with these fields, or the requests given.

    `held` devices of the node `on` are allocated to it, and usable on the node `pinned` alone;
    `reserved` are pods that it is reserved for, `deleted` is when somebody deleted it.
    """
    asked = {"requests": list(requests) or [request(**exactly)], "constraints": list(constraints)}
    document = build("ResourceClaim", called, {"devices": asked})
    if held:
        results = [
            {"request": "gpus", "driver": DRIVER, "pool": on, "device": device} for device in held
        ]
        document["status"] = {"allocation": {"devices": {"results": results}}}
    if pinned:
        field = {"key": "metadata.name", "operator": "In", "values": [pinned]}
        chosen = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        document["status"]["allocation"]["nodeSelector"] = chosen
    if reserved:
        consumers = [
            {"resource": "pods", "name": consumer, "uid": consumer} for consumer in reserved
        ]
        document.setdefault("status", {})["reservedFor"] = consumers
    if deleted:
        document["metadata"]["deletionTimestamp"] = deleted
    return document


def template(called, of):
    return build("ResourceClaimTemplate", called, {"spec": of["spec"]})


def pod(called="job", **spec):
    return build("Pod", called, spec, api="v1")


def event(about, reason, message, when="2026-11-22T10:00:00Z", kind="Warning"):
    """Returns an Event about the object."""
    metadata = about["metadata"]
    written = build("Event", f"{metadata['name']}.{reason.lower()}", {}, api="v1")
    del written["spec"]
    return written | {
        "involvedObject": {"kind": about["kind"], "name": metadata["name"], "namespace": "default"},
        "type": kind,
        "reason": reason,
        "message": message,
        "lastTimestamp": when,
    }


def container(**requests):
    return {"name": "main", "resources": {"requests": requests}}


def deployment(called, replicas, limits):
    """As people write one, with limits alone."""
    main = {"name": "main", "resources": {"limits": limits}}
    spec = {"replicas": replicas, "template": {"spec": {"containers": [main]}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": called},
        "spec": spec,
    }


def taint(key, effect="NoSchedule", value=""):
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


def rule(called, key, **chosen):
    return build(
        "DeviceTaintRule", called, {"deviceSelector": chosen, "taint": taint(key)}, namespace=""
    )
