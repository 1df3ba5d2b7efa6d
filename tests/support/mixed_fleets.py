"""Random mixes of all machines that are known, and of claims; `claimd explain` and the simulated
scheduler have to agree about each.

`python -m tests.support.mixed_fleets --count 2000` is the campaign; each number is a seed, and the
same number the same cluster. It prints where they differ.
"""

import argparse
import functools
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

import msgspec
import yaml

from claimd.node.publish import slices
from claimd.sim.scheduler import scheduling_cycle
from claimd_devices import fake, scan
from claimd_devices.gpu import Roots, Rules
from tests.support import cluster_objects, recorded_pods
from tests.support.cluster_objects import DRIVER, NUMA, ROOT

REPOSITORY = Path(__file__).resolve().parents[2]

# What an older claimd published of every GPU.
OLD_CORE = ("type", "vendor", "vendorID", "deviceID", "driver")

_MINE = f'device.attributes["{DRIVER}"]'
_CAPACITY = f'device.capacity["{DRIVER}"]'

# Some read what not every device has: unguarded, behind a guard, or with a value in its place.
SELECTORS = (
    f'{_MINE}.vendor == "nvidia"',
    f'{_MINE}.vendor in ["amd", "intel"]',
    f"!{_MINE}.integrated",
    f'{_MINE}.placement == "package"',
    f"{_MINE}.integrated && {_MINE}.linkWidth == 0",
    f"{_MINE}.linkWidth >= 8",
    f'{_MINE}.family == "Blackwell" || {_MINE}.family.startsWith("RDNA")',
    f'{_MINE}.productName.contains("Radeon")',
    f'{_MINE}.uuid != "unknown"',
    f'{_MINE}.driverVersion.isGreaterThan(semver("550.0.0"))',
    f'{_CAPACITY}.memory.compareTo(quantity("16Gi")) >= 0',
    f'{_CAPACITY}.memory.isLessThan(quantity("100Gi"))',
    f"{_MINE}.tiles == 1",
    f"{_MINE}.?tiles.orValue(1) == 1",
    f'{_MINE}.vbios.startsWith("9")',
    f'{_MINE}.vendor == "nvidia" && {_MINE}.vbios.startsWith("9")',
    f'{_MINE}.vendor != "nvidia" || {_MINE}.vbios.startsWith("9")',
    f'"vbios" in {_MINE} && {_MINE}.vbios.startsWith("9")',
    f"{_MINE}.iommuGroup >= 20",
    f"{_MINE}.?iommuGroup.orValue(0) >= 0",
    f'{_CAPACITY}.computeUnits.compareTo(quantity("100")) >= 0',
    f'"computeUnits" in {_CAPACITY}',
    f'{_CAPACITY}.carveOut.compareTo(quantity("1Gi")) >= 0',
    f'{_MINE}.parent.startsWith("gpu")',
    f'{_MINE}.model == "x"',
    'device.attributes["resource.kubernetes.io"].numaNode == 0',
    f'"{NUMA}" in device.attributes["resource.kubernetes.io"]',
    'device.attributes["resource.kubernetes.io"].?pcieRoot.orValue("") != ""',
    'device.attributes["nobody.example.com"].x == 1',
    f'device.driver == "{DRIVER}"',
    f"{_MINE}.vendor",
)


def machines():
    """The words of every tree of tests/roots, of every model and of a few machines, by a name."""
    words = {f"model-{name.replace(':', '-')}": (name,) for name in fake.MODELS}
    for name in ("laptop", "workstation", "vm"):
        words[name] = (f"machine:{name}",)
    words["hybrid"] = ("intel:uhd770,console", "nvidia:l4", "amd:radeon")
    for path in sorted((REPOSITORY / "tests/roots").glob("*.json")):
        words[path.stem] = tuple(json.loads(path.read_text())["tree"])
    return words


@functools.cache
def published(node, words):
    """What claimd publishes of a machine of these words: slices as an API server has them."""
    with tempfile.TemporaryDirectory() as folder:
        fake.write(Path(folder), fake.parse(words))
        inventory = scan.scan(Roots.in_folder(Path(folder)), Rules(vfio=True))
    built, _ = slices.build(inventory, DRIVER, node)
    return json.loads(msgspec.json.encode(built))


def older(slices_):
    """The same as an older claimd would have published it."""
    slices_ = json.loads(json.dumps(slices_))
    for slice_ in slices_:
        for device in slice_["spec"].get("devices", ()):
            attributes = device["attributes"]
            device["attributes"] = {name: attributes[name] for name in OLD_CORE}
            device.pop("capacity", None)
    return slices_


@functools.cache
def classes():
    """Every class that is shipped for our own driver's name, by name."""
    named = {}
    for path in sorted((REPOSITORY / "deploy").rglob("*.yaml")):
        is_template = "chart" in path.relative_to(REPOSITORY).parts
        if is_template or path.parent.name.startswith("as-"):
            continue
        for document in yaml.safe_load_all(path.read_text()):
            if document and document.get("kind") == "DeviceClass":
                named[document["metadata"]["name"]] = document
    return named


# One cluster


def pod(seed):
    """A pod that waits, with everything that is there."""
    dice = random.Random(seed)
    words = machines()
    names = dice.sample(sorted(words), dice.randint(1, 6))
    documents = list(classes().values())
    for name in names:
        documents.append(cluster_objects.node(name))
        of_node = published(name, words[name])
        if dice.random() < 0.2:
            of_node = older(of_node)
        for slice_ in of_node:
            documents.append({"apiVersion": cluster_objects.API, "kind": "ResourceSlice", **slice_})
            documents += _holders(dice, name, slice_)

    claims = [_claim(dice, f"claim-{index}") for index in range(dice.choice((1, 1, 1, 2)))]
    asked = [claim["metadata"]["name"] for claim in claims]
    waiting = cluster_objects.pod(
        "job",
        containers=[{"name": "c"}],
        resourceClaims=[{"name": name, "resourceClaimName": name} for name in asked],
    )
    for document in (*claims, waiting):
        document["metadata"]["uid"] = f"uid-of-{document['metadata']['name']}"
    return recorded_pods.Pod(
        name=f"seed {seed}", title="", pod="job", objects=[*documents, *claims, waiting]
    )


def _holders(dice, node, slice_):
    """Claims that have some of the devices already."""
    names = [device["name"] for device in slice_["spec"].get("devices", ())]
    held = [name for name in names if dice.random() < 0.15]
    if held:
        claim_ = cluster_objects.claim(f"held-{node}", held=held, on=node)
        claim_["metadata"]["uid"] = f"uid-of-held-{node}"
        yield claim_


def _claim(dice, called):
    requests = [_request(dice, f"r{index}") for index in range(dice.choice((1, 1, 1, 2)))]
    constraints = []
    if dice.random() < 0.15:
        attribute = dice.choice((ROOT, NUMA, f"{DRIVER}/vendor", f"{DRIVER}/tiles"))
        constraints.append({"matchAttribute": attribute})
    return cluster_objects.claim(called, *requests, constraints=constraints)


def _request(dice, called):
    if dice.random() < 0.15:
        alternatives = [
            {"name": f"a{index}", **_device_request(dice)} for index in range(dice.randint(1, 3))
        ]
        return {"name": called, "firstAvailable": alternatives}
    return {"name": called, "exactly": _device_request(dice)}


def _device_request(dice):
    chosen = dice.sample(SELECTORS, dice.choice((0, 1, 1, 1, 2)))
    general = ("any.gpu.claimd.dev", "gpu.claimd.dev", "nvidia.gpu.claimd.dev")
    asked = {
        "deviceClassName": dice.choice(general if dice.random() < 0.7 else sorted(classes())),
        "selectors": [cluster_objects.selector(expression) for expression in chosen],
        "allocationMode": "ExactCount",
        "count": dice.choice((1, 1, 1, 1, 2)),
    }
    if dice.random() < 0.1:
        del asked["count"]
        asked["allocationMode"] = "All"
    return asked


# Where they differ


def difference(recorded):
    """What is wrong, or nothing, and what became of the pod."""
    decision = recorded_pods.simulated(recorded)
    verdict = recorded_pods.explained(recorded)
    if "unknown" in verdict.outcomes.values():
        return "", "not decided in time"
    if isinstance(decision, scheduling_cycle.Bind):
        if decision.node in verdict.possible:
            return "", "bound"
        said = verdict.answer.blockers or verdict.outcomes
        return f"{said}, and it is bound to {decision.node}", "bound"

    is_error = getattr(decision, "reason", "") == "SchedulerError"
    if verdict.possible:
        return f"yes for {sorted(verdict.possible)}, and the decision is {decision}", "pending"
    if is_error != ("error" in verdict.outcomes.values()):
        return f"{verdict.outcomes}, and the decision is {decision}", "pending"
    return "", "an error" if is_error else "pending"


def run(first, count):
    """The outcomes, with how many there are of each, and all differences by the seed's name."""
    outcomes, different = Counter(), {}
    for seed in range(first, first + count):
        recorded = pod(seed)
        text, outcome = difference(recorded)
        outcomes[outcome] += 1
        if text:
            different[recorded.name] = text
    return outcomes, different


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=2_000)
    asked = parser.parse_args()
    outcomes, different = run(asked.first, asked.count)
    for name, text in different.items():
        print(f"{name}: {text}")
    print(f"{asked.count} mixes, {len(different)} differences; {dict(outcomes)}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
