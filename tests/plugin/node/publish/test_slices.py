"""Inventory to slices: the cases of tests/cases/slices, each limit of the API, and that nothing
ever breaks them.
"""

import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from claimd.kubernetes.api import quantity
from claimd.kubernetes.api.resource import Device, DeviceTaint, ResourceSlice
from claimd.node.publish import desired, sharing, slices
from claimd_devices import fake, scan
from claimd_devices.gpu import Engines, Fabric, Gpu, Inventory, Libraries, Roots, Rules, Setup
from tests.support import samples

DRIVER, NODE = "gpu.claimd.dev", "node-a"
CASES = sorted((Path(__file__).parents[3] / "cases/slices").glob("*.yaml"))
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
    return slices.build(Inventory.from_unsorted(gpus), DRIVER, NODE)


def device(**more: Any) -> Device:
    [only], _ = build(gpu(**more))
    return only.spec.devices[0]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path, tmp_path: Path):
    """Of GPUs that are described, or of a machine."""
    case = yaml.safe_load(path.read_text())
    if "tree" in case:
        fake.write(tmp_path / "tree", fake.parse(case["tree"]))
        inventory = scan.scan(
            Roots.in_folder(tmp_path / "tree"), Rules(vfio=case.get("vfio", False))
        )
    else:
        inventory = Inventory.from_unsorted(Gpu(**described) for described in case["gpus"])
    options = slices.Options(sharing=sharing.parse(case.get("share", [])))
    built, problems = slices.build(inventory, DRIVER, NODE, options)
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


@pytest.mark.sampled
@settings(max_examples=samples.share(150), deadline=None)
@given(st.lists(gpus, max_size=12))
def test_no_hardware_makes_a_slice_that_the_api_refuses(gpus_: list[Gpu]):
    built, problems = slices.build(Inventory.from_unsorted(gpus_), DRIVER, NODE)
    assert (built, problems) == slices.build(
        Inventory.from_unsorted(reversed(gpus_)), DRIVER, NODE
    ) or len({g.name for g in gpus_}) < len(gpus_)
    devices = [d for s in built for d in s.spec.devices]
    assert len({d.name for d in devices}) == len(devices)
    for device in devices:
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", device.name, re.ASCII)
        assert len(device.attributes) + len(device.capacity) <= 32
        for key, attribute in device.attributes.items():
            assert re.fullmatch(
                r"(resource\.kubernetes\.io/)?[A-Za-z_][A-Za-z0-9_]{0,31}", key, re.ASCII
            )
            [(kind, value)] = msgspec.to_builtins(attribute).items()
            if kind == "int":
                assert 0 <= value < 2**63
            elif kind != "bool":
                assert 0 < len(value.encode()) <= 64
            if kind == "version":
                assert SEMVER.fullmatch(value)
        for amount in device.capacity.values():
            assert 0 <= quantity.parse(amount.value) < 2**63
    msgspec.json.encode(built)


# ---------------------------------------------------------------- parts of GPUs


def divide(count: int, parts: int) -> Inventory:
    gpus = []
    for number in range(1, count + 1):
        whole = gpu(number, counters=(("partitions", parts),))
        more = {"parent": whole.name, "kind": "partition", "counters": (("partitions", 1),)}
        gpus += [
            whole,
            *(gpu(number, name=f"{whole.name}-xcp-{part}", **more) for part in range(parts)),
        ]
    return Inventory.from_unsorted(gpus)


@pytest.mark.parametrize(
    ("count", "parts", "sets"), [(1, 2, [1]), (8, 8, [8]), (9, 2, [8, 1]), (16, 64, [8, 8])]
)
def test_counters_have_slices_of_their_own(count: int, parts: int, sets: list[int]):
    built, problems = slices.build(divide(count, parts), DRIVER, NODE)
    assert not problems
    assert [len(s.spec.shared_counters) for s in built if s.spec.shared_counters] == sets
    assert all(bool(s.spec.devices) != bool(s.spec.shared_counters) for s in built)
    known = {
        counter_set.name: counter_set.counters
        for s in built
        for counter_set in s.spec.shared_counters
    }
    devices = [device for s in built for device in s.spec.devices]
    assert len(devices) == count * (parts + 1)
    for device in devices:
        (taken,) = device.consumes_counters
        assert taken.counters.keys() == known[taken.counter_set].keys()


def test_without_partitions_there_are_whole_gpus():
    built, _ = slices.build(divide(2, 4), DRIVER, NODE, slices.Options(partitions=False))
    (only,) = built
    assert [device.name for device in only.spec.devices] == [gpu(1).name, gpu(2).name]
    assert not any(device.consumes_counters for device in only.spec.devices)


def test_without_counters_a_divided_gpu_is_its_parts():
    whole = gpu(1, kind="divided", counters=(("instances", 2),))
    more = {"parent": whole.name, "kind": "partition", "counters": (("instances", 1),)}
    parts = [gpu(1, name=f"{whole.name}-mig-{number}-0", **more) for number in (7, 8)]
    both = Inventory.from_unsorted([whole, *parts, gpu(2)])

    built, _ = slices.build(both, DRIVER, NODE, slices.Options(partitions=False))
    (only,) = built
    assert [device.name for device in only.spec.devices] == [
        *(part.name for part in parts),
        gpu(2).name,
    ]
    assert not any(device.consumes_counters for device in only.spec.devices)

    built, _ = slices.build(both, DRIVER, NODE)
    assert [len(slice_.spec.devices) for slice_ in built] == [4, 0]
    assert [counter_set.name for counter_set in built[1].spec.shared_counters] == [whole.name]


def test_a_virtual_function_without_its_physical_one_is_whole_enough():
    alone = Inventory.from_unsorted([gpu(kind="vf", parent="gpu-0000-00-00-0")])
    built, _ = slices.build(alone, DRIVER, NODE, slices.Options(partitions=False))
    assert len(built[0].spec.devices) == 1


def test_numa_nodes_as_a_list_by_option_only():
    inventory = Inventory.from_unsorted([gpu(numa_node=1, numa_nodes=(1, 0))])
    for option, value in ((False, {"int": 1}), (True, {"ints": [1, 0]})):
        built, _ = slices.build(inventory, DRIVER, NODE, slices.Options(numa_list=option))
        attribute = built[0].spec.devices[0].attributes["resource.kubernetes.io/numaNode"]
        assert msgspec.to_builtins(attribute) == value


def test_what_people_mean_by_a_gpu_comes_first():
    gpus = [
        gpu(1, console=True),
        gpu(2, integrated=True),
        gpu(3, integrated=True, is_package=True),
        gpu(4, integrated=False),
        gpu(5),
        gpu(6, console=True, integrated=True),
        gpu(7, integrated=True),
    ]
    [built], _ = build(*gpus)
    order = [device.name for device in built.spec.devices]
    assert order == [gpu(number).name for number in (3, 4, 5, 2, 7, 1, 6)]


def test_a_device_has_as_many_taints_as_the_api_allows():
    many = [DeviceTaint(key=f"claimd.dev/t{n}", effect="None") for n in range(40)]
    [built], _ = slices.build(
        Inventory.from_unsorted([gpu(1)]), DRIVER, NODE, taints={gpu(1).name: many}
    )
    assert built.spec.devices[0].taints == many[: slices.TAINTS_LIMIT]


def test_two_of_one_name_are_one_device_and_a_problem():
    [built], [problem] = build(gpu(1), gpu(2, name=gpu(1).name))
    assert len(built.spec.devices) == 1
    assert "left out: another device" in problem


def test_parts_are_what_has_counters():
    assert slices.has_partitions(divide(1, 2))
    assert not slices.has_partitions(Inventory.from_unsorted([gpu(1), gpu(2)]))


def test_the_probe_is_a_slice_of_counters_alone_that_comes_behind_all_others():
    probe = slices.counters_probe(DRIVER, NODE)
    [last], _ = build()
    assert probe.metadata.name > last.metadata.name
    assert (probe.spec.driver, probe.spec.devices) == (DRIVER, [])
    assert (probe.spec.node_name, probe.spec.pool.name) == (NODE, NODE)
    assert (probe.spec.pool.generation, probe.spec.pool.resource_slice_count) == (1, 1)
    assert len(probe.spec.shared_counters) == 1


def test_the_probe_for_sharing_has_one_device_that_two_claims_may_have():
    probe = slices.sharing_probe(DRIVER, NODE)
    assert slices.counters_probe(DRIVER, NODE).metadata.name > probe.metadata.name
    assert (probe.spec.driver, probe.spec.node_name, probe.spec.pool.name) == (DRIVER, NODE, NODE)
    assert (probe.spec.pool.generation, probe.spec.pool.resource_slice_count) == (1, 1)
    [probed] = probe.spec.devices
    assert probed.allow_multiple_allocations is True
    assert {name: capacity.value for name, capacity in probed.capacity.items()} == {"shares": "2"}


# ---------------------------------------------------------------- built again and again


# Another value for each field of a Gpu than `whole_gpu` has.
CHANGES: dict[str, Any] = {
    "name": "gpu-0000-02-00-0",
    "address": "0000:02:00.0",
    "vendor": "amd",
    "vendor_id": 0x1002,
    "device_id": 0x2331,
    "driver": "nouveau",
    "driver_version": "595.1",
    "product": "Another",
    "uuid": "GPU-2",
    "memory": 2 << 30,
    "numa_node": 1,
    "pcie_root": "pci0000:80",
    "nodes": (),
    "environment": (("A", "b"),),
    "notes": ("noted",),
    "kind": "vf",
    "parent": "gpu-0000-00-00-0",
    "profile": "1g.10gb",
    "counters": (("memory", 2),),
    "family": "Blackwell",
    "architecture": "sm_100",
    "vbios": "97",
    "integrated": True,
    "is_package": True,
    "compute_units": 2,
    "engines": Engines(copy=2),
    "tiles": 2,
    "link_width": 8,
    "link_speed": 16000,
    "link_width_now": 1,
    "link_speed_now": 2500,
    "is_asleep": True,
    "console": True,
    "is_bound_on_demand": True,
    "carve_out": 2 << 20,
    "numa_nodes": (1, 0),
    "iommu_group": 2,
    "most_virtual": 2,
    "setup": Setup(cuda="12.2", kernel_module="proprietary"),
    "fabric": Fabric(domain="xgmi-2", size=4, position=2),
    "libraries": Libraries(how="none", reason="there are none"),
}


def whole_gpu(**more: Any) -> Gpu:
    values: dict[str, Any] = {
        "driver_version": "580.1",
        "product": "One",
        "uuid": "GPU-1",
        "memory": 1 << 30,
        "numa_node": 0,
        "pcie_root": "pci0000:40",
        "counters": (("memory", 1),),
        "family": "Hopper",
        "architecture": "sm_90",
        "vbios": "96",
        "integrated": False,
        "compute_units": 1,
        "engines": Engines(copy=1),
        "tiles": 1,
        "link_width": 16,
        "link_speed": 32000,
        "carve_out": 1 << 20,
        "numa_nodes": (0, 1),
        "iommu_group": 1,
        "most_virtual": 1,
        "setup": Setup(cuda="13.0", kernel_module="open"),
        "fabric": Fabric(domain="xgmi-1", size=8, position=1),
        "libraries": Libraries(how="mounted", reason="they are there"),
    }
    return gpu(**(values | more))


def test_each_field_of_a_gpu_is_changed_below():
    assert set(CHANGES) == {field.name for field in dataclasses.fields(Gpu)}


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_what_changes_with_a_gpu_is_described_anew(name: str):
    options = slices.Options(numa_list=True, sharing=sharing.parse(["nvidia=shares:2"]))
    before = whole_gpu()
    after = dataclasses.replace(before, **{name: CHANGES[name]})
    others = [gpu(number) for number in (3, 4)]
    builder = slices.Builder(DRIVER, NODE)
    for inventory in (
        Inventory.from_unsorted([before, *others]),
        Inventory.from_unsorted([after, *others]),
    ):
        expected = slices.build(inventory, DRIVER, NODE, options)
        assert builder.build(inventory, options) == expected


def test_what_has_not_changed_is_not_described_anew():
    """And not kept for its own sake: of two equal GPUs the older one may go."""
    builder = slices.Builder(DRIVER, NODE)
    first, second = whole_gpu(), whole_gpu()
    [before, *_], _ = builder.build(Inventory.from_unsorted([first]))
    [after, *_], _ = builder.build(Inventory.from_unsorted([second, gpu(2)]))
    assert after.spec.devices[0] is before.spec.devices[0]
    assert sys.getrefcount(first) <= 2  # `first`, and the argument


def test_a_gpu_that_was_away_is_described_as_it_is_then():
    builder = slices.Builder(DRIVER, NODE)
    builder.build(Inventory.from_unsorted([whole_gpu()]))
    builder.build(Inventory())
    [back, *_], _ = builder.build(Inventory.from_unsorted([whole_gpu(product="Another")]))
    assert back.spec.devices[0].attributes["productName"].string == "Another"


@pytest.mark.parametrize(
    "options",
    [
        slices.Options(partitions=False),
        slices.Options(numa_list=True),
        slices.Options(sharing=sharing.parse(["nvidia=shares:2"])),
    ],
)
def test_other_options_describe_all_anew(options: slices.Options):
    inventory = Inventory.from_unsorted([whole_gpu()])
    builder = slices.Builder(DRIVER, NODE)
    plain = builder.build(inventory)
    assert builder.build(inventory, options) == slices.build(inventory, DRIVER, NODE, options)
    assert builder.build(inventory, options) != plain
    assert builder.build(inventory) == plain


def test_problems_are_told_by_every_build():
    builder = slices.Builder(DRIVER, NODE)
    inventory = Inventory.from_unsorted([whole_gpu(product="x" * 80)])
    _, problems = builder.build(inventory)
    assert problems
    assert builder.build(inventory)[1] == problems


def test_a_problem_is_logged_once_and_equal_slices_are_no_change(caplog):
    wanted = desired.DesiredSlices(None, DRIVER, NODE, slices.DEFAULT_OPTIONS)
    wanted.inventory = Inventory.from_unsorted([whole_gpu(product="x" * 80)])
    assert [wanted.build() for _ in range(3)] == [True, False, False]
    assert caplog.text.count("not published as found") == len(set(caplog.messages)) > 0


def test_taints_come_and_go_with_the_same_gpu():
    builder = slices.Builder(DRIVER, NODE)
    inventory = Inventory.from_unsorted([whole_gpu()])
    taint = DeviceTaint(key="claimd.dev/hot", effect="NoSchedule")
    for taints in ({}, {inventory.gpus[0].name: [taint]}, {}):
        [built, *_], _ = builder.build(inventory, taints=taints)
        assert built.spec.devices[0].taints == taints.get(inventory.gpus[0].name, [])


# ---------------------------------------------------------------------- a vendor's driver


def test_under_a_vendors_name_its_gpus_alone_are_published_in_its_words() -> None:
    built, problems = slices.build(
        Inventory.from_unsorted([gpu(1), gpu(2, vendor="amd")]), "gpu.nvidia.com", NODE
    )
    (device,) = built[0].spec.devices
    assert device.attributes["brand"].string == "unknown"
    assert problems == ["gpu-0000-02-00-0 left out: gpu.nvidia.com has no GPUs of amd"]


def test_a_part_says_anew_what_it_has_of_its_whole() -> None:
    """Its uuid is not known until the GPU is first used; the part itself is the same then."""
    part = gpu(1, name="gpu-0000-01-00-0-mig-1-0", kind="partition", parent="gpu-0000-01-00-0")
    builder = slices.Builder("gpu.nvidia.com", NODE)
    seen = []
    for uuid in (None, "GPU-1"):
        whole = gpu(1, kind="divided", uuid=uuid)
        built, _ = builder.build(Inventory.from_unsorted([whole, part]))
        _, device = built[0].spec.devices
        seen.append(device.attributes.get("parentUUID"))
    assert seen[0] is None
    assert seen[1] is not None
    assert seen[1].string == "GPU-1"
