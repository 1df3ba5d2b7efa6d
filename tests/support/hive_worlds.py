"""Random worlds of GPUs that links join: real machines as claimd publishes them, some devices taken,
and claims for GPUs of one hive. The same number, the same world.
"""

import dataclasses
import functools
import json
import random
import tempfile
from pathlib import Path

import msgspec

from claimd.kubernetes.allocator import features
from claimd.node.publish import slices
from claimd_devices import fake, scan
from claimd_devices.gpu import Fabric, Inventory, Roots

NODE, DRIVER = "node-1", "gpu.claimd.dev"
ANY = {"metadata": {"name": "any"}, "spec": {}}

# A tray of a GB200 rack, whose NVLink domain only NVIDIA's library tells.
TRAY = "machine:gb200"
MACHINES = (
    ("machine:mi300x",),
    ("machine:two-hives",),
    ("machine:mi355x",),
    ("amd:mi300x=3,hive=1", "amd:mi300x=2,hive=2", "amd:mi210", "numa=2"),
    ("amd:mi300x=4,mode=dpx", "numa=2"),
    ("amd:mi300x=2", "nvidia:h100=2", "roots=2"),
    (TRAY,),
)
ATTRIBUTES = (f"{DRIVER}/fabric",) * 4 + (
    "resource.kubernetes.io/pcieRoot",
    "resource.kubernetes.io/numaNode",
    f"{DRIVER}/fabricPosition",
)
SELECTORS = (
    f'device.attributes["{DRIVER}"].?fabricSize.orValue(1) >= 4',
    f'device.attributes["{DRIVER}"].?fabric.orValue("") != ""',
    f'device.attributes["{DRIVER}"].fabricSize >= 4',
    f'device.attributes["{DRIVER}"].type == "gpu"',
)


@functools.cache
def published(words):
    """What claimd publishes of a machine, as text, so that nobody changes it."""
    with tempfile.TemporaryDirectory() as folder:
        fake.write(Path(folder), fake.parse(words))
        inventory = scan.scan(Roots.in_folder(Path(folder)))
    if TRAY in words:
        domain = Fabric(domain="nvlink-7bd0a2b5-7e15-4ae7-8c7c-5d9b1c1a2f3e.1", state="completed")
        gpus = [dataclasses.replace(gpu, fabric=domain) for gpu in inventory.gpus]
        inventory = Inventory.from_unsorted(gpus)
    built, _ = slices.build(inventory, DRIVER, NODE)
    return msgspec.json.encode(built).decode()


def numbered(seed):
    dice = random.Random(seed)
    of_node = json.loads(published(dice.choice(MACHINES)))
    devices = [device["name"] for each in of_node for device in each["spec"].get("devices", ())]
    taken = dice.sample(devices, dice.randint(0, len(devices) - 1))
    results = [
        {"request": "r", "driver": DRIVER, "pool": NODE, "device": device} for device in taken
    ]
    status = {"allocation": {"devices": {"results": results}}}
    holder = {"metadata": {"name": "holder", "namespace": "default"}, "status": status}
    return {
        "features": sorted(features.DEFAULT),
        "node": {"metadata": {"name": NODE, "labels": {}}},
        "classes": [ANY],
        "slices": of_node,
        "claims": [_claim(dice, index) for index in range(dice.choice((1, 1, 2)))],
        "taken": [holder] if results else [],
    }


def _claim(dice, index):
    requests = []
    for number in range(dice.choice((1, 1, 2))):
        exactly = {"deviceClassName": "any", "allocationMode": "ExactCount"}
        exactly["count"] = dice.choice((1, 2, 2, 3, 4, 8))
        if dice.random() < 0.4:
            exactly["selectors"] = [{"cel": {"expression": dice.choice(SELECTORS)}}]
        requests.append({"name": f"r{number}", "exactly": exactly})
    constraints = []
    for _ in range(dice.choice((1, 1, 2))):
        kind = dice.choice(("matchAttribute",) * 4 + ("distinctAttribute",))
        constraints.append({kind: dice.choice(ATTRIBUTES)})
    name = f"claim-{index}"
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": requests, "constraints": constraints}},
    }
