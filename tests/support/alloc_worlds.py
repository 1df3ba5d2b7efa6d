"""Random worlds for the allocator, from tiny, where everything interacts, to larger. The same
draws, the same world.
"""

import random

from claimd.kubernetes.allocator import features

DRIVERS = ("gpu.example.com", "nic.example.com")
NODE = "node-1"
AMOUNTS = ("1", "2", "3", "4", "1Gi", "2Gi", "3Gi", "500m", "1500m", "10")


class Draw:
    """Choices from a random.Random, or from anything with its `randrange`."""

    def __init__(self, source):
        self.source = source

    def number(self, least, most):
        return least + self.source.randrange(most - least + 1)

    def pick(self, options):
        return options[self.source.randrange(len(options))]

    def chance(self, percent):
        return self.source.randrange(100) < percent

    def some(self, options, percent):
        return [option for option in options if self.chance(percent)]


def numbered(seed):
    """The world of a campaign's seed: mostly small, some larger."""
    draw = Draw(random.Random(seed))
    return world(draw, size=draw.pick((1, 2, 3, 4, 5, 6, 8, 12)), selectors=draw.chance(60))


def shuffled(seed):
    """The same with its slices in random order, as an API server may list them."""
    numbered_world = numbered(seed)
    random.Random(seed).shuffle(numbered_world["slices"])
    return numbered_world


def for_the_oldest_allocator(seed):
    """The same with no feature that Kubernetes' oldest allocator lacks."""
    shuffled_world = shuffled(seed)
    shuffled_world["features"] = sorted(features.STABLE.intersection(shuffled_world["features"]))
    return shuffled_world


def for_1_38(seed):
    """The same under the rules of Kubernetes 1.38, with what they are about."""
    changed = shuffled(seed)
    changed["features"] = sorted({*changed["features"], features.RULES_OF_1_38})
    draw = Draw(random.Random(f"1.38 {seed}"))
    for slice_ in changed["slices"]:
        driver = slice_["spec"]["driver"]
        for device in slice_["spec"].get("devices", ()):
            if "capacity" in device:
                device["capacity"] = _spelt(draw, device["capacity"], driver)
            if draw.chance(5):
                device["allowMultipleAllocations"] = not device.get("allowMultipleAllocations")
            version = device["attributes"].get("model", {})
            if "+" not in version.get("version", "+") and draw.chance(30):
                device["attributes"]["model"] = {"version": f"{version['version']}+b1"}

    for claim in changed["claims"]:
        for request in claim["spec"]["devices"]["requests"]:
            for asked in request.get("firstAvailable") or [request["exactly"]]:
                if amounts := asked.get("capacity", {}).get("requests"):
                    asked["capacity"]["requests"] = _requested(draw, amounts)
    for claim in changed["taken"]:
        for result in claim["status"]["allocation"]["devices"]["results"]:
            if "consumedCapacity" in result:
                amounts = _spelt(draw, result["consumedCapacity"], result["driver"])
                result["consumedCapacity"] = amounts
    return changed


def _requested(draw, amounts):
    """Returns the requested amounts under one of their two names, a few under both or negative."""
    if draw.chance(3):
        amounts = {name: f"-{amount}" for name, amount in amounts.items()}
    spelt = _spelt(draw, amounts, DRIVERS[0])
    # With a third capacity, which devices may lack, chance decides about the error.
    for name in amounts:
        both = (name, f"{DRIVERS[0]}/{name}")
        if spelt.keys() >= {*both}:
            return {spelling: spelt[spelling] for spelling in both}
    return spelt


def _spelt(draw, named, driver):
    """Returns the capacities under one of their two names, a few under both."""
    spelt = {}
    for name, value in named.items():
        both = draw.chance(4)
        qualified = draw.chance(35)
        if qualified or both:
            spelt[f"{driver}/{name}"] = value
        if not qualified or both:
            spelt[name] = draw.pick(list(named.values())) if both else value
    return spelt


def world(draw, *, size=4, selectors=True):
    """`size`: about how many devices a slice has."""
    enabled = features.DEFAULT if draw.chance(40) else features.ALL
    if draw.chance(15):
        enabled = frozenset(gate for gate in sorted(enabled) if draw.chance(80))
        if features.CONSUMABLE_CAPACITY not in enabled:
            enabled -= {features.FRACTIONAL_CAPACITY_RANGE}
    flavour = {
        name: draw.chance(percent)
        for name, percent in (
            ("counters", 30),
            ("capacity", 30),
            ("taints", 20),
            ("lists", 20),
            ("binding", 10),
            ("per_device", 12),
            ("groups", 12),
            ("skip", 8),
            ("odd", 12),
            ("selectors", 50 if selectors else 0),
            ("admin", 20),
            ("first", 30),
            ("all", 25),
            ("constraints", 60),
            ("derived", 10 if selectors else 0),
        )
    }
    slices = []
    for driver in DRIVERS[: draw.number(1, 2)]:
        for pool in ("pool-a", "pool-b")[: 1 + draw.chance(25)]:
            slices += _pool(draw, driver, pool, size, flavour)
    classes = [_class(draw, name, flavour) for name in ("any", "some")]
    claims = [
        _claim(draw, f"claim-{index}", flavour, size)
        for index in range(1 + draw.chance(35) + draw.chance(10))
    ]
    labels = {"zone": draw.pick(("a", "b")), "rank": draw.pick(("1", "5", "x"))}
    node = {"metadata": {"name": NODE, "labels": labels}}
    if flavour["skip"] and draw.chance(80):
        node["status"] = {"declaredFeatures": ["DRAOptionalNodeOperations"]}
    return {
        "features": sorted(enabled),
        "node": node,
        "classes": classes,
        "slices": slices,
        "claims": claims,
        "taken": _taken(draw, slices),
    }


def _pool(draw, driver, pool, size, flavour):
    count = 1 + draw.chance(30) + draw.chance(10)
    counters = flavour["counters"] and draw.chance(80)
    per_device = flavour["per_device"] and draw.chance(70)
    slices = []
    for index in range(count):
        spec = {
            "driver": driver,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": count + counters},
        }
        if per_device:
            spec["perDeviceNodeSelection"] = True
        else:
            spec |= _where(draw)
        spec["devices"] = [
            _device(draw, f"dev-{index}{number}", flavour, counters, per_device)
            for number in range(draw.number(0 if draw.chance(10) else 1, size))
        ]
        if flavour["skip"] and draw.chance(50):
            spec["skipNodeOperations"] = ["*"]
        slices.append({"metadata": {"name": f"{pool}-{draw.number(0, 9)}{index}"}, "spec": spec})
    if counters:
        sets = [
            {
                "name": name,
                "counters": {
                    c: {"value": draw.pick(("2", "3", "5", "8"))} for c in ("memory", "cores")
                },
            }
            for name in ("set-0", "set-1")
        ]
        spec = {
            "driver": driver,
            "pool": dict(slices[0]["spec"]["pool"]),
            "sharedCounters": sets,
            **_where(draw),
        }
        slices.append({"metadata": {"name": f"{pool}-counters"}, "spec": spec})
    if flavour["odd"]:
        _oddities(draw, slices)
    return slices


def _oddities(draw, slices):
    """A pool that is being updated, or that contradicts itself."""
    slice_ = draw.pick(slices)
    what = draw.number(0, 4)
    if what == 0:
        slice_["spec"]["pool"] = slice_["spec"]["pool"] | {"generation": draw.number(0, 2)}
    elif what == 1:
        slice_["spec"]["pool"] = slice_["spec"]["pool"] | {"resourceSliceCount": draw.number(1, 3)}
    elif what == 2 and slice_["spec"].get("devices"):
        slice_["spec"]["devices"].append(dict(slice_["spec"]["devices"][0]))
    elif what == 3:
        slices.remove(slice_)
    elif slice_["spec"].get("devices"):
        slice_["spec"]["devices"][0]["consumesCounters"] = [
            {"counterSet": "nowhere", "counters": {"memory": {"value": "1"}}}
        ]


def _where(draw):
    if draw.chance(60):
        return {"nodeName": NODE}
    return draw.pick(
        (
            {"allNodes": True},
            {"nodeName": "node-2"},
            {"nodeSelector": selector(draw)},
            {"nodeSelector": selector(draw)},
        )
    )


def selector(draw):
    requirement = draw.pick(
        (
            {"key": "zone", "operator": "In", "values": ["a", "b"]},
            {"key": "zone", "operator": "In", "values": ["a"]},
            {"key": "zone", "operator": "NotIn", "values": ["b"]},
            {"key": "zone", "operator": "Exists"},
            {"key": "rank", "operator": "Gt", "values": ["2"]},
            {"key": "rank", "operator": "Lt", "values": ["9"]},
            {"key": "other", "operator": "DoesNotExist"},
        )
    )
    term = {"matchExpressions": [requirement]}
    if draw.chance(20):
        term["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": [NODE]}]
    return {"nodeSelectorTerms": [term]}


def _device(draw, name, flavour, counters, per_device):
    device = {"name": name, "attributes": _attributes(draw, flavour)}
    if flavour["capacity"]:
        device["capacity"] = {c: _capacity(draw) for c in draw.some(("memory", "slots"), 70)}
        if draw.chance(60):
            device["allowMultipleAllocations"] = True
    if counters and draw.chance(85):
        device["consumesCounters"] = [
            {
                "counterSet": name,
                "counters": {c: {"value": draw.pick(("1", "2", "3"))} for c in used},
            }
            | ({"compatibilityGroups": groups} if groups else {})
            for name in draw.some(("set-0", "set-1"), 60)
            for used in [draw.some(("memory", "cores"), 70) or ["memory"]]
            for groups in [draw.some(("x", "y"), 50) if flavour["groups"] else []]
        ]
    if flavour["taints"] and draw.chance(40):
        device["taints"] = [
            {
                "key": key,
                "value": draw.pick(("", "v")),
                "effect": draw.pick(("NoSchedule", "NoExecute", "None")),
            }
            for key in draw.some(("k", "l"), 60)
        ]
    if flavour["binding"] and draw.chance(50):
        device |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
        if draw.chance(50):
            device["bindsToNode"] = True
    if per_device:
        device |= _where(draw)
    return device


def _attributes(draw, flavour):
    attributes = {}
    # A device with one attribute under both its names is legal, but what expressions see of it is
    # left to chance.
    twice = draw.pick(("root", "gpu.example.com/root"))
    for name in draw.some(("root", "numa", "model", "gpu.example.com/root", "other.org/root"), 60):
        if name == twice:
            continue
        if flavour["lists"] and draw.chance(50):
            attributes[name] = draw.pick(
                (
                    {"ints": draw.some((1, 2, 3), 60) or [1]},
                    {"strings": draw.some(("a", "b", "c"), 60) or ["a"]},
                )
            )
        elif name == "numa":
            attributes[name] = {"int": draw.number(0, 1)}
        elif name == "model" and draw.chance(50):
            attributes[name] = {"version": draw.pick(("1.0.0", "2.0.0"))}
        else:
            attributes[name] = {"string": draw.pick(("a", "b"))}
    return attributes


def _capacity(draw):
    value = draw.pick(("4", "8", "10Gi", "2500m"))
    if draw.chance(50):
        return {"value": value}
    return {
        "value": value,
        "requestPolicy": draw.pick(
            (
                {"default": "1", "validRange": {"min": "1", "step": "1"}},
                {"default": "1", "validRange": {"min": "1", "max": "3"}},
                {"default": "2", "validValues": ["1", "2", "4"]},
                {"default": "1Gi", "validRange": {"min": "1Gi", "max": "4Gi", "step": "1Gi"}},
                {"default": "500m", "validRange": {"min": "500m", "step": "500m"}},
                {"default": "1"},
            )
        ),
    }


def _class(draw, name, flavour):
    spec = {}
    if flavour["selectors"] and draw.chance(60):
        spec["selectors"] = [{"cel": {"expression": _expression(draw)}}]
    if draw.chance(40):
        spec["config"] = [{"opaque": {"driver": DRIVERS[0], "parameters": {"from": name}}}]
    return {"metadata": {"name": name}, "spec": spec}


def _expression(draw):
    return draw.pick(
        (
            'device.driver == "gpu.example.com"',
            'device.attributes["gpu.example.com"].?root.orValue("") == "a"',
            'device.attributes["gpu.example.com"].?numa.orValue(9) < 1',
            '"memory" in device.capacity["gpu.example.com"]',
            'device.attributes["gpu.example.com"].numa == 0',
            'device.attributes["gpu.example.com"].?root.orValue("").includes("a")',
            'device.attributes["gpu.example.com"].?numa.orValue([]).exists(x, x == 1)',
            "true",
            "true",
            "true",
            "false",
        )
    )


def _claim(draw, name, flavour, size):
    requests = [
        _request(draw, f"r{index}", flavour, size)
        for index in range(1 + draw.chance(50) + draw.chance(20))
    ]
    devices = {"requests": requests}
    names = [request["name"] for request in requests]
    names += [
        f"{request['name']}/{sub['name']}"
        for request in requests
        for sub in request.get("firstAvailable", ())
    ]
    if flavour["constraints"]:
        devices["constraints"] = [_constraint(draw, names) for _ in range(1 + draw.chance(25))]
    if draw.chance(30):
        devices["config"] = [
            {
                "opaque": {"driver": DRIVERS[0], "parameters": {"of": index}},
                "requests": draw.some(names, 40),
            }
            for index in range(draw.number(1, 2))
        ]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"devices": devices},
    }


def _constraint(draw, names):
    kind = draw.pick(("matchAttribute", "matchAttribute", "distinctAttribute"))
    attribute = draw.pick(
        ("gpu.example.com/root", "gpu.example.com/numa", "gpu.example.com/model", "other.org/root")
    )
    return {kind: attribute} | ({"requests": draw.some(names, 60)} if draw.chance(50) else {})


def _request(draw, name, flavour, size):
    if flavour["first"] and draw.chance(60):
        subs = [
            {"name": f"s{index}"} | _exactly(draw, flavour, size, False)
            for index in range(draw.number(1, 3))
        ]
        return {"name": name, "firstAvailable": subs}
    return {"name": name, "exactly": _exactly(draw, flavour, size, True)}


def _exactly(draw, flavour, size, whole):
    asked = {"deviceClassName": draw.pick(("any", "any", "some")), "allocationMode": "ExactCount"}
    if flavour["odd"] and draw.chance(3):
        asked["deviceClassName"] = "unknown"
    if flavour["all"] and draw.chance(50):
        asked["allocationMode"] = "All"
    else:
        asked["count"] = draw.number(1, 33 if draw.chance(2) else max(2, size // 2))
    if whole and flavour["admin"] and draw.chance(40):
        asked["adminAccess"] = draw.chance(80)
    if flavour["taints"] and draw.chance(50):
        asked["tolerations"] = [
            draw.pick(
                (
                    {"operator": "Exists"},
                    {"key": "k", "operator": "Exists", "effect": "NoSchedule"},
                    {"key": "k", "operator": "Equal", "value": "v"},
                    {"key": "l", "operator": "Equal"},
                )
            )
        ]
    if flavour["capacity"] and draw.chance(70):
        names = ("memory", "slots", "nothing") if draw.chance(5) else ("memory", "slots")
        asked["capacity"] = {"requests": {c: draw.pick(AMOUNTS) for c in draw.some(names, 60)}}
    if flavour["selectors"] and draw.chance(50):
        asked["selectors"] = [
            {"cel": {"expression": _expression(draw)}} for _ in range(draw.number(1, 2))
        ]
    if flavour["derived"] and draw.chance(60):
        expression = draw.pick(
            ('device.attributes["gpu.example.com"].?root.orValue("z")', "device.driver", "1")
        )
        asked["derivedAttributes"] = [{"name": "gpu.example.com/root", "expression": expression}]
    return asked


def _taken(draw, slices):
    """Claims that hold some of the devices."""
    results = []
    for slice_ in slices:
        spec = slice_["spec"]
        for device in spec.get("devices", ()):
            if not draw.chance(15):
                continue
            result = {
                "request": "r",
                "driver": spec["driver"],
                "pool": spec["pool"]["name"],
                "device": device["name"],
            }
            if device.get("allowMultipleAllocations"):
                result["shareID"] = f"share-{len(results)}"
                result["consumedCapacity"] = {
                    c: draw.pick(("1", "2", "1Gi")) for c in device.get("capacity", ())
                }
            elif draw.chance(10):
                result["adminAccess"] = True
            results.append(result)
    status = {"allocation": {"devices": {"results": results}}}
    return (
        [{"metadata": {"name": "holder", "namespace": "default"}, "status": status}]
        if results
        else []
    )
