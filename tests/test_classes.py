"""Every class and example that is shipped, put to one cluster of all machines that are known.

One node a tree of tests/roots, a fake model, a laptop and the like: in a mixed fleet no selector
of ours may stop a pod, whatever its neighbours are.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claimd.kubernetes import allocator
from claimd.kubernetes.api.core import Node
from claimd.kubernetes.api.scheduling import DeviceClass, ResourceClaim, ResourceSlice
from tests.support import manifests, mixed_fleets, samples
from tests.support.allocating import read

# The first of a worker writes, reads and publishes all machines.
pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).resolve().parent.parent

# For a model or a way to divide one that no fake may have.
OF_ONE_MODEL = re.compile(r"mig-|-nps|com-gpu\.")


def documents(folder: str, kind: str) -> dict[str, Any]:
    """Every object of a kind below deploy/FOLDER, by name; those of other drivers' names are test_drop_in's."""
    named = {}
    for path in sorted((ROOT / "deploy" / folder).rglob("*.yaml")):
        is_template = "chart" in path.relative_to(ROOT).parts
        if is_template or path.parent.name.startswith("as-"):
            continue
        for document in manifests.read(path.read_text()):
            if document.get("kind") == kind:
                named[document["metadata"]["name"]] = document
    return named


CLASSES = documents(".", "DeviceClass")
TEMPLATES = documents("examples", "ResourceClaimTemplate")
KEPT: list[allocator.Allocator] = []


def published(node: str, words: list[str]) -> list[ResourceSlice]:
    """Returns what claimd publishes of a machine of these words."""
    return read(mixed_fleets.published(node, tuple(words)), list[ResourceSlice])


@functools.cache
def cluster() -> tuple[ResourceSlice, ...]:
    """All of them at once."""
    slices: list[ResourceSlice] = []
    for node, words in mixed_fleets.machines().items():
        slices += published(node, words)
    return tuple(slices)


@functools.cache
def older_cluster() -> tuple[ResourceSlice, ...]:
    """Returns the slices of the cluster as an older claimd would have published them."""
    documents = msgspec.json.decode(msgspec.json.encode(cluster()))
    return tuple(read(mixed_fleets.older(documents), list[ResourceSlice]))


def claim(spec: dict[str, Any]) -> ResourceClaim:
    return read({"metadata": {"name": "c", "namespace": "default"}, "spec": spec}, ResourceClaim)


def claim_of_class(name: str) -> ResourceClaim:
    exactly = {"deviceClassName": name, "allocationMode": "ExactCount", "count": 1}
    return claim({"devices": {"requests": [{"name": "one", "exactly": exactly}]}})


def claim_of_template(name: str) -> ResourceClaim:
    spec = json.loads(json.dumps(TEMPLATES[name]["spec"]["spec"]))
    for request in spec["devices"]["requests"]:
        request["exactly"] = {"allocationMode": "ExactCount", "count": 1} | request["exactly"]
    return claim(spec)


@functools.cache
def classes() -> allocator.Classes:
    return allocator.Classes(read(list(CLASSES.values()), list[DeviceClass]))


def allocator_of(slices: tuple[ResourceSlice, ...]) -> allocator.Allocator:
    """Returns the allocator of a cluster, which is made once for the whole cluster."""
    if slices is cluster() and KEPT:
        return KEPT[0]
    allocator_ = allocator.Allocator(class_lister=classes(), slices=slices)
    if slices is cluster():
        KEPT.append(allocator_)
    return allocator_


def given(
    asked: ResourceClaim, node: str, of: tuple[ResourceSlice, ...] | None = None
) -> list[str] | None:
    """The devices that the claim gets on the node; None if it gets none."""
    asks = allocator_of(cluster() if of is None else of)
    results = asks.allocate(read({"metadata": {"name": node}}, Node), [asked])
    if results is None:
        return None
    return [result.device for result in results[0].devices.results]


@pytest.mark.parametrize("name", samples.parameters([[name] for name in CLASSES]))
def test_no_class_errs_on_any_node(name: str) -> None:
    by_node = {node: given(claim_of_class(name), node) for node in mixed_fleets.machines()}
    if not OF_ONE_MODEL.search(name):
        assert any(by_node.values())
    assert not all(by_node.values())


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_example_errs_on_any_node(name: str) -> None:
    for node in mixed_fleets.machines():
        given(claim_of_template(name), node)


@pytest.mark.parametrize("name", samples.parameters([[name] for name in CLASSES]))
def test_no_class_errs_on_what_an_older_claimd_published(name: str) -> None:
    for slice_ in older_cluster():
        given(claim_of_class(name), slice_.spec.node_name, (slice_,))


def test_one_pod_one_gpu_gets_the_discrete_gpu() -> None:
    words = ["intel:uhd770,console", "nvidia:l4"]
    (slice_,) = published("hybrid", words)
    (discrete,) = [
        device.name
        for device in slice_.spec.devices
        if device.attributes["placement"].string == "discrete"
    ]
    for asked in (claim_of_template("one-gpu"), claim_of_class("any.gpu.claimd.dev")):
        assert given(asked, "hybrid", (slice_,)) == [discrete]


@pytest.mark.parametrize(
    ("name", "node", "expected"),
    [
        ("gpu.claimd.dev", "uhd770", False),
        ("any.gpu.claimd.dev", "uhd770", True),
        ("integrated.gpu.claimd.dev", "uhd770", True),
        ("intel.gpu.claimd.dev", "uhd770", True),
        ("gpu.claimd.dev", "b580", True),
        ("integrated.gpu.claimd.dev", "b580", False),
        ("gpu.claimd.dev", "gb10", True),
        ("nvidia.gpu.claimd.dev", "gb10", True),
        ("integrated.gpu.claimd.dev", "gb10", False),
        ("gpu.claimd.dev", "model-amd-mi300a", True),
        ("integrated.gpu.claimd.dev", "model-amd-mi300a", False),
        ("integrated.gpu.claimd.dev", "strix", True),
        ("gpu.claimd.dev", "strix", False),
        ("amd.gpu.claimd.dev", "strix", True),
    ],
)
def test_discrete_integrated_and_any(name: str, node: str, expected: bool) -> None:
    assert bool(given(claim_of_class(name), node)) is expected


@pytest.mark.parametrize(
    ("node", "product"),
    [
        ("laptop", "NVIDIA GeForce RTX 3060 Laptop GPU"),
        ("workstation", "NVIDIA GeForce RTX 3080"),
        ("vm", "Tesla T4"),
    ],
)
def test_on_machines_with_several_gpus_the_free_discrete_one_is_given(
    node: str, product: str
) -> None:
    """Checks a laptop with a GPU in its processor, and a desktop with a GPU for its screen."""
    products = {
        device.name: device.attributes["productName"].string
        for slice_ in cluster()
        if slice_.spec.node_name == node
        for device in slice_.spec.devices
    }
    (chosen,) = given(claim_of_class("gpu.claimd.dev"), node) or ("",)
    assert products[chosen] == product


def test_a_gpu_at_whose_screen_somebody_works_comes_by_any_or_its_vendors_class_alone() -> None:
    slices_ = tuple(published("desk", ["amd:radeon,console"]))
    assert given(claim_of_class("gpu.claimd.dev"), "desk", slices_) is None
    for name in ("any.gpu.claimd.dev", "amd.gpu.claimd.dev"):
        assert given(claim_of_class(name), "desk", slices_)


def test_what_people_want_comes_first() -> None:
    words = ["intel:uhd770", "amd:radeon,console", "nvidia:l4", "intel:b580"]
    (slice_,) = published("desk", words)
    order = [device.attributes["vendor"].string for device in slice_.spec.devices]
    assert order == ["nvidia", "intel", "intel", "amd"]
    places = [device.attributes["placement"].string for device in slice_.spec.devices]
    assert places == ["discrete", "discrete", "integrated", "discrete"]


# ---------------------------------------------------------------- extended resources

DIVIDED = {
    "seven": "nvidia:a100,mig=7",
    "cpx": "amd:mi300x,mode=cpx",
    "vfs": "intel:flex170,vfs=4",
}


def class_of(resource: str) -> str:
    """The one class that stands for this extended resource."""
    (name,) = [
        name
        for name, class_ in CLASSES.items()
        if class_["spec"].get("extendedResourceName") == resource
    ]
    return name


@pytest.mark.parametrize(
    ("resource", "words", "expected"),
    [
        ("nvidia.com/gpu", "nvidia:h100", "gpu"),
        ("nvidia.com/gpu", "nvidia:gb10", "gpu"),
        ("nvidia.com/gpu", "amd:mi300x", ""),
        ("nvidia.com/gpu", DIVIDED["seven"], ""),
        ("nvidia.com/mig-1g.10gb", DIVIDED["seven"], "partition"),
        ("nvidia.com/mig-1g.5gb", DIVIDED["seven"], ""),
        ("nvidia.com/mig-1g.10gb.me", DIVIDED["seven"], ""),
        ("nvidia.com/gpu.l4", "nvidia:l4", "gpu"),
        ("nvidia.com/gpu.l4", "nvidia:t4", ""),
        ("nvidia.com/gpu.t4", "nvidia:t4", "gpu"),
        ("nvidia.com/gpu.a100", "nvidia:a100", "gpu"),
        ("nvidia.com/gpu.h100", "nvidia:h100", "gpu"),
        ("amd.com/gpu", "amd:mi300x", "gpu"),
        ("amd.com/gpu", "amd:radeon", "gpu"),
        ("amd.com/gpu", DIVIDED["cpx"], ""),
        ("amd.com/gpu.mi300x", "amd:mi300x", "gpu"),
        ("amd.com/gpu.mi300x", "amd:mi210", ""),
        ("amd.com/spx_nps1", "amd:mi300x", "gpu"),
        ("amd.com/cpx_nps1", DIVIDED["cpx"], "partition"),
        ("gpu.intel.com/i915", "intel:max1550", "gpu"),
        ("gpu.intel.com/i915", "intel:b580", ""),
        ("gpu.intel.com/i915", DIVIDED["vfs"], "vf"),
        ("gpu.intel.com/xe", "intel:b580", "gpu"),
        ("gpu.intel.com/xe", "intel:arc", ""),
    ],
)
def test_what_a_device_plugins_name_gives(resource: str, words: str, expected: str) -> None:
    slices_ = tuple(published("n", [words]))
    types = {
        device.name: device.attributes["type"].string
        for slice_ in slices_
        for device in slice_.spec.devices
    }
    devices = given(claim_of_class(class_of(resource)), "n", slices_)
    assert [types[name] for name in devices or ()] == ([expected] if expected else [])


def test_the_names_are_those_of_the_device_plugins() -> None:
    """An API server takes any, and pods would wait for a name that is mistyped."""
    names = set()
    for class_ in CLASSES.values():
        resource = class_["spec"].get("extendedResourceName", "")
        (selector,) = class_["spec"]["selectors"]
        profile = re.search(r'profile.orValue\(""\) == "([^"]+)"', selector["cel"]["expression"])
        if profile and resource.startswith("nvidia.com/"):
            assert resource == f"nvidia.com/mig-{profile[1].replace('+', '.')}"
        elif profile and resource.startswith("amd.com/"):
            assert resource == f"amd.com/{profile[1]}"
        if resource:
            assert resource not in names
            names.add(resource)
    assert {"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe"} < names
