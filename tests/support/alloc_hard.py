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
    """The same as so many requests for one device each: every order of the devices is another
    choice then.
    """
    [claim] = hard["claims"]
    devices = claim["spec"]["devices"]
    [request] = devices["requests"]
    one = request["exactly"] | {"count": 1}
    several = [
        {"name": f"gpu-{index}", "exactly": one} for index in range(request["exactly"]["count"])
    ]
    return hard | {"claims": [claim | {"spec": {"devices": devices | {"requests": several}}}]}


def opposing(count=24, wanted=12):
    """Two counters of which no set of devices can satisfy both, though any set satisfies either."""
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
                        "right": {"value": str(most - weight)},
                    },
                }
            ],
        }
        for index, weight in enumerate(weights)
    ]
    left, right = str(limit), str(wanted * most - limit - 1)
    counters = [{"name": "all", "counters": {"left": {"value": left}, "right": {"value": right}}}]
    return world(devices, {"count": wanted}, counters=counters)
