"""Worlds in which a search over every combination takes seconds, and one as large as nodes get.
Plain data.
"""

NODE = {"metadata": {"name": "node-1", "labels": {}}}
ROOT = "resource.kubernetes.io/pcieRoot"
CLASS = {"metadata": {"name": "gpu"}, "spec": {}}


def world(devices, request, *, constraints=(), counters=None, selectors=()):
    spec = {"driver": "gpu.example.com", "nodeName": "node-1"}
    pool = {"name": "node-1", "generation": 1, "resourceSliceCount": 2 if counters else 1}
    slices = [{"metadata": {"name": "devices"}, "spec": spec | {"pool": pool, "devices": devices}}]
    if counters:
        slices.append(
            {
                "metadata": {"name": "counters"},
                "spec": spec | {"pool": pool, "sharedCounters": counters},
            }
        )
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount"} | request
    claim = {"requests": [{"name": "gpus", "exactly": exactly}], "constraints": list(constraints)}
    class_ = {
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": expression}} for expression in selectors]},
    }
    metadata = {"name": "train", "namespace": "default", "uid": "1"}
    return {
        "node": NODE,
        "classes": [class_],
        "slices": slices,
        "claims": [{"metadata": metadata, "spec": {"devices": claim}}],
    }


def rooted(count, per_root):
    return [
        {
            "name": f"gpu-{index}",
            "attributes": {
                ROOT: {"string": f"pci{index // per_root:04x}"},
                "uuid": {"string": f"GPU-{index}"},
            },
        }
        for index in range(count)
    ]


def sharing(count, allowed):
    devices = [
        {
            "name": f"gpu-{n}",
            "consumesCounters": [{"counterSet": "all", "counters": {"memory": {"value": "1"}}}],
        }
        for n in range(count)
    ]
    return devices, [{"name": "all", "counters": {"memory": {"value": str(allowed)}}}]


def eight_of_one_root():
    return world(rooted(64, 7), {"count": 8}, constraints=[{"matchAttribute": ROOT}])


def nine_of_one_root():
    return world(rooted(32, 8), {"count": 9}, constraints=[{"matchAttribute": ROOT}])


def eight_of_seven():
    devices, counters = sharing(20, 7)
    return world(devices, {"count": 8}, counters=counters)


def large_node(count):
    """128 devices, `count` of them with two selectors and one root."""
    devices = [
        device
        | {
            "capacity": {"memory": {"value": "80Gi"}},
            "attributes": device["attributes"] | {"model": {"string": "h100"}},
        }
        for device in rooted(128, 8)
    ]
    selectors = [
        'device.attributes["gpu.example.com"].model == "h100"',
        'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0',
    ]
    return world(
        devices, {"count": count}, constraints=[{"matchAttribute": ROOT}], selectors=selectors
    )


def apart(hard):
    """The same devices, asked for by as many requests for one device each.

    Every order of the devices is then another choice.
    """
    [claim] = hard["claims"]
    devices = claim["spec"]["devices"]
    [request] = devices["requests"]
    exactly = request["exactly"] | {"count": 1}
    several = [
        {"name": f"gpu-{index}", "exactly": exactly} for index in range(request["exactly"]["count"])
    ]
    return hard | {"claims": [claim | {"spec": {"devices": devices | {"requests": several}}}]}


def opposing(count=24, wanted=12, unit=1):
    """Two counters that no set of devices can satisfy both, though some set satisfies each of them.

    If `unit`, the unit of the second counter, differs from that of the first, their sum tells
    nothing.
    """
    weights = [7 + 3 * index + index % 2 for index in range(count)]
    most = max(weights) + 1
    limit = sum(weights) * wanted // count
    devices = [
        {
            "name": f"part-{index}",
            "consumesCounters": [
                {
                    "counterSet": "all",
                    "counters": {
                        "left": {"value": str(weight)},
                        "right": {"value": str((most - weight) * unit)},
                    },
                }
            ],
        }
        for index, weight in enumerate(weights)
    ]
    left, right = str(limit), str((wanted * most - limit - 1) * unit)
    counters = [{"name": "all", "counters": {"left": {"value": left}, "right": {"value": right}}}]
    return world(devices, {"count": wanted}, counters=counters)


def pairs(count, held=("nic-0",), nics=None, each_its_root=True):
    """So many pairs of GPU and NIC, each under a root of its own, and a claim that wants them all.

    `held` devices are held by the claims h0, h1 and so on; `nics` are the roots that have a NIC.
    Without `each_its_root` everything has to be under one root.
    """
    pool = {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
    slices, classes = [], []
    for kind, roots in (("gpu", range(count)), ("nic", range(count) if nics is None else nics)):
        devices = [
            {
                "name": f"{kind}-{root}",
                "attributes": {ROOT: {"string": f"pci0000:{root:02x}"}},
            }
            for root in roots
        ]
        driver = f"{kind}.example.com"
        spec = {"driver": driver, "nodeName": "node-1", "pool": pool, "devices": devices}
        slices.append({"metadata": {"name": kind}, "spec": spec})
        selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
        classes.append({"metadata": {"name": driver}, "spec": {"selectors": [selector]}})

    requests = []
    constraints = []
    for index in range(count):
        for kind in ("gpu", "nic"):
            exactly = {"deviceClassName": f"{kind}.example.com", "allocationMode": "ExactCount"}
            requests.append({"name": f"{kind}-{index}", "exactly": exactly | {"count": 1}})
        both = [f"gpu-{index}", f"nic-{index}"]
        constraints.append({"requests": both, "matchAttribute": ROOT})
    if not each_its_root:
        constraints = [{"matchAttribute": ROOT}]
    claim = {
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"devices": {"requests": requests, "constraints": constraints}},
    }
    return {
        "node": NODE,
        "classes": classes,
        "slices": slices,
        "claims": [claim],
        "taken": [taken(f"h{index}", device) for index, device in enumerate(held)],
    }


def taken(name, *devices, driver=""):
    """A claim that holds devices of the node's pool; their driver is that of their name."""
    results = [
        {
            "request": "r",
            "driver": driver or f"{device.partition('-')[0]}.example.com",
            "pool": "node-1",
            "device": device,
        }
        for device in devices
    ]
    return {
        "metadata": {"name": name, "namespace": "default"},
        "status": {"allocation": {"devices": {"results": results}}},
    }


def divided(gpus=8):
    """GPUs in parts as MIG has them: each place of a part takes certain slices of the memory."""
    kinds = (
        ("1g.20gb", 1, ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("2g.20gb", 2, ((0, 1), (2, 3), (4, 5))),
        ("3g.40gb", 3, ((0, 1, 2, 3), (4, 5, 6, 7))),
    )
    slices = {f"memory-slice-{index}": {"value": "1"} for index in range(8)}
    devices, counters = [], []
    for gpu in range(gpus):
        counters.append({"name": f"gpu-{gpu}", "counters": {"cores": {"value": "7"}} | slices})
        for profile, cores, places in kinds:
            for place in places:
                uses = {"cores": {"value": str(cores)}}
                uses |= {f"memory-slice-{index}": {"value": "1"} for index in place}
                devices.append(
                    {
                        "name": f"gpu-{gpu}-{profile.replace('.', '-')}-{place[0]}",
                        "attributes": {"profile": {"string": profile}},
                        "consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": uses}],
                    }
                )
    return devices, counters


def divided_among(*wanted, gpus=8):
    """A claim for so many parts of each profile."""
    devices, counters = divided(gpus)
    world_ = world(devices, {"count": 1}, counters=counters)
    requests = []
    for profile, count in wanted:
        expression = f'device.attributes["gpu.example.com"].profile == "{profile}"'
        exactly = {
            "deviceClassName": "gpu",
            "allocationMode": "ExactCount",
            "count": count,
            "selectors": [{"cel": {"expression": expression}}],
        }
        requests.append({"name": f"p-{profile.replace('.', '-')}", "exactly": exactly})
    world_["claims"][0]["spec"]["devices"]["requests"] = requests
    return world_
