"""Inventory to slices: the cases of tests/cases/slices, each limit of the API, and that nothing
ever breaks them.
"""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from devices import fake, scan
from devices.gpu import Gpu, Inventory, Roots, Rules
from plugin.api import quantity
from plugin.api.resource import Device, ResourceSlice
from plugin.publish import slices

DRIVER, NODE = "gpu.claimd.dev", "node-a"
CASES = sorted((Path(__file__).parents[2] / "cases/slices").glob("*.yaml"))
SEMVER = re.compile(  # as semver.org suggests it
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
    r"(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?",
    re.ASCII,
)


def gpu(number: int = 1, **more: Any) -> Gpu:
    values = {
        "name": f"gpu-0000-{number:02x}-00-0",
        "address": f"0000:{number:02x}:00.0",
        "vendor": "nvidia",
        "vendor_id": 0x10DE,
        "device_id": 0x2330,
        "driver": "nvidia",
    }
    return Gpu(**(values | more))


def build(*gpus: Gpu) -> tuple[list[ResourceSlice], list[str]]:
    return slices.build(Inventory.of(gpus), DRIVER, NODE)


def device(**more: Any) -> Device:
    [only], _ = build(gpu(**more))
    return only.spec.devices[0]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path, tmp_path: Path):
    """Of GPUs that are described, or of a machine."""
    case = yaml.safe_load(path.read_text())
    if "tree" in case:
        fake.write(tmp_path / "tree", fake.parse(case["tree"]))
        inventory = scan.scan(Roots.under(tmp_path / "tree"), Rules(vfio=case.get("vfio", False)))
    else:
        inventory = Inventory.of(Gpu(**described) for described in case["gpus"])
    built, problems = slices.build(inventory, DRIVER, NODE)
    assert msgspec.to_builtins(built) == case["slices"]
    assert problems == case["problems"]


def test_there_are_cases():
    assert len(CASES) >= 21


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(0, [0]), (1, [1]), (64, [64]), (65, [64, 1]), (128, [64, 64]), (129, [64, 64, 1])],
)
def test_a_slice_has_at_most_64_devices(count: int, sizes: list[int]):
    built, problems = build(*(gpu(number) for number in range(count)))
    assert [len(s.spec.devices) for s in built] == sizes
    assert [s.metadata.name for s in built] == [
        f"{i:05x}-gpu.claimd.dev-node-a" for i in range(len(sizes))
    ]
    assert {s.spec.pool.resource_slice_count for s in built} == {len(sizes)}
    listed = [d.name for s in built for d in s.spec.devices]
    assert listed == sorted(listed)
    assert len(listed) == count
    assert not problems


@pytest.mark.parametrize("name", ["a", "0", "a" * 63, "gpu-0000-41-00-0"])
def test_a_label_is_a_name(name: str):
    assert build(gpu(name=name))[0][0].spec.devices[0].name == name


@pytest.mark.parametrize("name", ["", "a" * 64, "-a", "a-", "A", "a.b", "a_b", "a\n", "ä"])
def test_what_is_no_label_is_no_name(name: str):
    built, problems = build(gpu(name=name), gpu(2))
    assert [d.name for d in built[0].spec.devices] == ["gpu-0000-02-00-0"]
    assert len(problems) == 1


@pytest.mark.parametrize(
    "kernel", ["550.54.15", "1.2.3", "0.0.0", "6.8.0-45-generic", "1.2.3-rc.1+build.7"]
)
def test_a_semantic_version_stays(kernel: str):
    attributes = device(driver_version=kernel).attributes
    assert attributes["driverVersion"].version == kernel
    assert "driverVersionFull" not in attributes


@pytest.mark.parametrize(
    ("kernel", "version"),
    [
        ("535.104", "535.104.0"),
        ("550", "550.0.0"),
        ("550.054.01", "550.54.1"),
        ("6.19.14.31400000", "6.19.14"),
        ("v1.2.3", "1.2.3"),
        ("1.2.3-01", "1.2.3"),
        ("6.10.5_beta", "6.10.5"),
        ("535.104.05 (open)", "535.104.5"),
        ("1.2.3-" + "x" * 60, "1.2.3"),
    ],
)
def test_other_versions_are_made_semantic(kernel: str, version: str):
    attributes = device(driver_version=kernel).attributes
    assert attributes["driverVersion"].version == version
    if len(kernel) <= 64:
        assert attributes["driverVersionFull"].string == kernel


@pytest.mark.parametrize(
    "kernel",
    ["", "N/A", "1.2x", "535.104.05b", "١.٢.٣", "9" * 19, "-1.2.3", "1.2.3\n4x\x00"],  # noqa: RUF001
)
def test_what_is_no_version_is_left_out(kernel: str):
    [built], problems = build(gpu(driver_version=kernel))
    version = built.spec.devices[0].attributes.get("driverVersion")
    assert version is None or (kernel.startswith("1.2.3") and version.version == "1.2.3")
    assert problems


@pytest.mark.parametrize(
    ("product", "published"),
    [
        ("x" * 64, "x" * 64),
        ("x" * 65, "x" * 64),
        ("é" * 32, "é" * 32),
        ("é" * 33, "é" * 32),
        ("x" + "é" * 32, "x" + "é" * 31),
        ("x" * 64 + " tail", "x" * 64),
        ("x" * 60 + " tail", "x" * 60),
        (" " * 65, None),
        ("\udcff", None),
        ("a\tb", None),
    ],
)
def test_a_product_is_cut_to_64_bytes_or_left_out(product: str, published: str | None):
    [built], problems = build(gpu(product=product))
    found = built.spec.devices[0].attributes.get("productName")
    assert (found.string if found else None) == published
    assert bool(problems) == (product != published)


@pytest.mark.parametrize("name", ["vendor", "driver", "uuid"])
def test_other_texts_that_are_too_long_are_left_out(name: str):
    assert device(**{name: "x" * 64}).attributes[name].string == "x" * 64
    [built], problems = build(gpu(**{name: "x" * 65}))
    assert name not in built.spec.devices[0].attributes
    assert problems == [f"gpu-0000-01-00-0: {name} left out: it has more than 64 bytes"]


@pytest.mark.parametrize("memory", [0, -1, 2**63])
def test_an_impossible_memory_is_left_out(memory: int):
    assert not device(memory=memory).capacity
    assert device(memory=2**63 - 1).capacity["memory"].value == "9223372036854775807"


texts = (
    st.none()
    | st.text(max_size=80)
    | st.from_regex(r"v?[0-9.]{1,30}[-+ .a-z0-9]{0,40}", fullmatch=True)
)
numbers = st.none() | st.integers(-2, 2**64)
gpus = st.builds(
    Gpu,
    name=st.from_regex(r"[a-z0-9-]{0,66}", fullmatch=True) | st.text(max_size=5),
    address=st.from_regex(r"[0-9a-f]{4,5}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-g]", fullmatch=True)
    | st.text(max_size=20),
    vendor=st.sampled_from(["nvidia", "amd", "intel"]) | st.text(max_size=70),
    vendor_id=st.integers(0, 0xFFFF),
    device_id=st.integers(0, 0xFFFF),
    driver=st.text(max_size=70),
    driver_version=texts,
    product=texts,
    uuid=texts,
    memory=numbers,
    numa_node=numbers,
    pcie_root=st.none() | st.from_regex(r"(pci)?[0-9a-f]{4}:[0-9a-f]{2}.?", fullmatch=True),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(gpus, max_size=12))
def test_no_hardware_makes_a_slice_that_the_api_refuses(found: list[Gpu]):
    built, problems = slices.build(Inventory.of(found), DRIVER, NODE)
    assert (built, problems) == slices.build(Inventory.of(reversed(found)), DRIVER, NODE) or len(
        {g.name for g in found}
    ) < len(found)
    devices = [d for s in built for d in s.spec.devices]
    assert len({d.name for d in devices}) == len(devices)
    for one in devices:
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", one.name, re.ASCII)
        assert len(one.attributes) + len(one.capacity) <= 32
        for key, attribute in one.attributes.items():
            assert re.fullmatch(
                r"(resource\.kubernetes\.io/)?[A-Za-z_][A-Za-z0-9_]{0,31}", key, re.ASCII
            )
            [(kind, value)] = msgspec.to_builtins(attribute).items()
            if kind == "int":
                assert 0 <= value < 2**63
            else:
                assert 0 < len(value.encode()) <= 64
            if kind == "version":
                assert SEMVER.fullmatch(value)
        for amount in one.capacity.values():
            assert 0 < quantity.parse(amount.value) < 2**63
    msgspec.json.encode(built)


# ---------------------------------------------------------------- what the API server refused


def two() -> ResourceSlice:
    [built], _ = build(gpu(1, uuid="u1", memory=1 << 30), gpu(2, uuid="u2"))
    return built


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        ("spec.devices[1].attributes[uuid].string", "gpu-0000-02-00-0: attributes[uuid]"),
        ("spec.devices[1].basic.attributes[uuid].string", "gpu-0000-02-00-0: attributes[uuid]"),
        (
            "spec.devices[0].attributes[resource.kubernetes.io/pciBusID]",
            "gpu-0000-01-00-0: attributes[resource.kubernetes.io/pciBusID]",
        ),
        ("spec.devices[0].capacity[memory]", "gpu-0000-01-00-0: capacity[memory]"),
        ("spec.devices[0].attributes[unknown]", "gpu-0000-01-00-0"),
        ("spec.devices[1].name", "gpu-0000-02-00-0"),
        ("spec.devices[1]", "gpu-0000-02-00-0"),
    ],
)
def test_a_refusal_points_at_the_smallest_part(field: str, shown: str):
    assert str(slices.rejected_part(two(), field)) == shown


@pytest.mark.parametrize(
    "field", ["", "spec.devices", "spec.devices[2].name", "spec.pool.name", "metadata.name"]
)
def test_a_refusal_of_no_device_is_of_no_part(field: str):
    assert slices.rejected_part(two(), field) is None


def test_what_was_refused_is_taken_out_and_nothing_else():
    wish = two()
    fields = [
        "spec.devices[0].attributes[uuid]",
        "spec.devices[0].capacity[memory]",
        "spec.devices[1]",
    ]
    found = [slices.rejected_part(wish, field) for field in fields]
    [left] = slices.without_rejected([wish], [refusal for refusal in found if refusal])
    [device] = left.spec.devices
    assert device.name == "gpu-0000-01-00-0"
    assert wish.spec.devices[0].attributes.keys() - device.attributes.keys() == {"uuid"}
    assert not device.capacity


def test_another_value_is_tried_again():
    wish = two()
    refusals = [
        slices.rejected_part(wish, "spec.devices[1].attributes[uuid]"),
        slices.rejected_part(wish, "spec.devices[0]"),
    ]
    changed, _ = build(gpu(1, uuid="new", memory=1 << 30), gpu(2, uuid="new"))
    assert slices.without_rejected(changed, [refusal for refusal in refusals if refusal]) == changed


def test_a_device_refused_after_one_of_its_attributes_goes():
    wish = two()
    first = slices.rejected_part(wish, "spec.devices[0].attributes[uuid]")
    assert first
    [reduced] = slices.without_rejected([wish], [first])
    second = slices.rejected_part(reduced, "spec.devices[0]")
    assert second
    [left] = slices.without_rejected([wish], [first, second])
    assert [d.name for d in left.spec.devices] == ["gpu-0000-02-00-0"]


# ---------------------------------------------------------------- parts of GPUs


def divided(count: int, parts: int) -> Inventory:
    found = []
    for number in range(1, count + 1):
        whole = gpu(number, counters=(("partitions", parts),))
        more = {"parent": whole.name, "kind": "partition", "counters": (("partitions", 1),)}
        found += [
            whole,
            *(gpu(number, name=f"{whole.name}-xcp-{part}", **more) for part in range(parts)),
        ]
    return Inventory.of(found)


@pytest.mark.parametrize(
    ("count", "parts", "sets"), [(1, 2, [1]), (8, 8, [8]), (9, 2, [8, 1]), (16, 64, [8, 8])]
)
def test_counters_have_slices_of_their_own(count: int, parts: int, sets: list[int]):
    built, problems = slices.build(divided(count, parts), DRIVER, NODE)
    assert not problems
    assert [len(s.spec.shared_counters) for s in built if s.spec.shared_counters] == sets
    assert all(bool(s.spec.devices) != bool(s.spec.shared_counters) for s in built)
    known = {one.name: one.counters for s in built for one in s.spec.shared_counters}
    devices = [device for s in built for device in s.spec.devices]
    assert len(devices) == count * (parts + 1)
    for device in devices:
        (taken,) = device.consumes_counters
        assert taken.counters.keys() == known[taken.counter_set].keys()


def test_without_partitions_there_are_whole_gpus():
    built, _ = slices.build(divided(2, 4), DRIVER, NODE, slices.Options(partitions=False))
    (only,) = built
    assert [device.name for device in only.spec.devices] == [gpu(1).name, gpu(2).name]
    assert not any(device.consumes_counters for device in only.spec.devices)


def test_a_virtual_function_without_its_physical_one_is_whole_enough():
    alone = Inventory.of([gpu(kind="vf", parent="gpu-0000-00-00-0")])
    built, _ = slices.build(alone, DRIVER, NODE, slices.Options(partitions=False))
    assert len(built[0].spec.devices) == 1


def test_numa_nodes_as_a_list_by_option_only():
    inventory = Inventory.of([gpu(numa_node=1, numa_nodes=(1, 0))])
    for option, value in ((False, {"int": 1}), (True, {"ints": [1, 0]})):
        built, _ = slices.build(inventory, DRIVER, NODE, slices.Options(numa_list=option))
        attribute = built[0].spec.devices[0].attributes["resource.kubernetes.io/numaNode"]
        assert msgspec.to_builtins(attribute) == value
