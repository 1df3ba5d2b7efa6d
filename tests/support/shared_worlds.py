"""Nodes whose GPUs are shared, as claimd publishes them, and claims that come and go. The same
number, the same world.
"""

import random
import uuid

import msgspec

from claimd.node.publish import sharing, slices
from claimd_devices.gpu import DIVIDED, Gpu, Inventory
from tests.support.alloc_worlds import Draw

DRIVER, NODE = "gpu.claimd.dev", "node-1"
VENDORS = {"nvidia": (0x10DE, 0x2330), "amd": (0x1002, 0x74A1), "intel": (0x8086, 0xE20B)}
SIZES = (None, 1 << 29, 12 << 30, 80 << 30, 81_559 << 20, 196_592 << 20, 25_753_026_560)
RULES = (
    "*=memory",
    "nvidia=memory:4Gi:1Gi",
    "amd=shares:3",
    "intel=unlimited",
    "parts=shares:2",
    "parts=memory:1Gi:512Mi",
    "0000:02:00.0=memory:3Gi:2Gi",
    "0000:01:00.0=exclusive",
    "10de:2330=shares:4",
)
MEMORY = ("0", "1", "1Gi", "3500Mi", "4Gi", "10Gi", "40Gi", "80Gi", "500Gi")
SHARES = ("1", "2", "3", "500m", "9")
STEPS = 10


def numbered(seed):
    """A world without claims, and the steps: a claim that comes, or the number of one that goes."""
    draw = Draw(random.Random(seed))
    inventory = Inventory.from_unsorted(_gpus(draw))
    rules = sharing.parse(draw.some(RULES, 45) or [RULES[0]])
    built, _ = slices.build(inventory, DRIVER, NODE, slices.Options(sharing=rules))
    selector = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type != "{DIVIDED}"'
    world = {
        "node": {"metadata": {"name": NODE}},
        "classes": [
            {
                "metadata": {"name": "gpu"},
                "spec": {"selectors": [{"cel": {"expression": selector}}]},
            }
        ],
        "slices": msgspec.to_builtins(built),
    }
    steps = [
        _claim(draw, number) if draw.chance(80) else draw.number(0, 5) for number in range(STEPS)
    ]
    return world, steps


def held(claim, answer, seed):
    """The claim as the scheduler leaves it, with share ids of its own for what is shared."""
    results = []
    for number, result in enumerate(answer["results"]):
        kept = {name: value for name, value in result.items() if name != "shared"}
        if result["shared"]:
            name = f"{seed} {claim['metadata']['name']} {number}"
            kept["shareID"] = str(uuid.uuid5(uuid.NAMESPACE_OID, name))
        results.append(kept)
    return claim | {"status": {"allocation": {"devices": {"results": results}}}}


def _gpus(draw):
    for number in range(1, 1 + draw.number(1, 4)):
        vendor = draw.pick(sorted(VENDORS))
        size = draw.pick(SIZES)
        is_divided = draw.chance(30)
        facts = {
            "address": f"0000:{number:02x}:00.0",
            "vendor": vendor,
            "vendor_id": VENDORS[vendor][0],
            "device_id": VENDORS[vendor][1],
            "driver": "d",
        }
        name = f"gpu-0000-{number:02x}-00-0"
        if not is_divided:
            yield Gpu(name=name, memory=size, compute_units=draw.pick((None, 304)), **facts)
            continue
        # A processor's GPU stays whole beside its virtual functions; they exclude each other.
        kind, parts = draw.pick((DIVIDED, "gpu")), draw.number(2, 4)
        whole = {"kind": kind, "memory": size if kind == "gpu" else None}
        yield Gpu(name=name, counters=(("parts", parts),), **whole, **facts)
        for part in range(parts):
            yield Gpu(
                name=f"{name}-p{part}",
                kind="partition",
                parent=name,
                memory=size // parts if size else None,
                counters=(("parts", 1),),
                **facts,
            )


def _claim(draw, number):
    requests = [_request(draw, name) for name in ("a", "b")[: draw.number(1, 2)]]
    devices = {"requests": requests}
    if draw.chance(25):
        address = "resource.kubernetes.io/pciBusID"
        kind = draw.pick(("distinctAttribute", "matchAttribute"))
        devices["constraints"] = [{kind: address}]
    return {
        "metadata": {"name": f"c{number}", "namespace": "default"},
        "spec": {"devices": devices},
    }


def _request(draw, name):
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    if draw.chance(15):
        exactly["count"] = draw.number(2, 4)
    elif draw.chance(6):
        del exactly["count"]
        exactly["allocationMode"] = "All"

    capacity = {}
    if draw.chance(60):
        capacity["memory"] = draw.pick(MEMORY)
    if draw.chance(12):
        capacity["shares"] = draw.pick(SHARES)
    if draw.chance(5):
        capacity["computeUnits"] = "200"
    if capacity:
        exactly["capacity"] = {"requests": capacity}
    if draw.chance(20):
        expression = draw.pick(
            (
                f'device.attributes["{DRIVER}"].sharing == "memory"',
                "device.allowMultipleAllocations",
                "!device.allowMultipleAllocations",
                f'device.capacity["{DRIVER}"].memory.compareTo(quantity("20Gi")) >= 0',
            )
        )
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    return {"name": name, "exactly": exactly}
