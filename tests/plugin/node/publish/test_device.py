"""One GPU as a device: what each value becomes, and what is left out of it."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimd.kubernetes.api import limits
from claimd.kubernetes.api.resource import Device, DeviceAttribute
from claimd.node.publish import device as devices
from claimd.node.publish import sharing
from claimd_devices import fake, scan
from claimd_devices.gpu import Engines, Fabric, Gpu, Roots, Rules, Setup
from tests.support import samples

ROOTS = sorted((Path(__file__).parents[3] / "roots").glob("*.json"))


def gpu(**more: Any) -> Gpu:
    values = {
        "name": "gpu-0000-01-00-0",
        "address": "0000:01:00.0",
        "vendor": "nvidia",
        "vendor_id": 0x10DE,
        "device_id": 0x2330,
        "driver": "nvidia",
    }
    return Gpu(**(values | more))


def describe(**more: Any) -> tuple[Device, list[str]]:
    problems: list[str] = []
    return devices.of_gpu(gpu(**more), problems), problems


def device(**more: Any) -> Device:
    return describe(**more)[0]


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
def test_what_is_no_version_is_the_lowest(kernel: str):
    built, problems = describe(driver_version=kernel)
    version = built.attributes["driverVersion"].version
    assert version == ("1.2.3" if kernel.startswith("1.2.3") else "0.0.0")
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
        (" " * 65, "unknown"),
        ("\udcff", "unknown"),
        ("a\tb", "unknown"),
        ("", "unknown"),
    ],
)
def test_a_product_is_cut_to_64_bytes_or_unknown(product: str, published: str):
    built, problems = describe(product=product)
    assert built.attributes["productName"].string == published
    assert bool(problems) == (product != published)


@pytest.mark.parametrize("name", ["vendor", "driver", "uuid"])
def test_other_texts_that_are_too_long_are_unknown(name: str):
    assert device(**{name: "x" * 64}).attributes[name].string == "x" * 64
    built, problems = describe(**{name: "x" * 65})
    assert built.attributes[name].string == "unknown"
    assert problems == [f"gpu-0000-01-00-0: {name} left out: it has more than 64 bytes"]


@pytest.mark.parametrize("memory", [0, -1, 2**63])
def test_an_impossible_memory_is_none(memory: int):
    built, problems = describe(memory=memory)
    assert built.capacity["memory"].value == "0"
    assert problems == [f"gpu-0000-01-00-0: memory left out: {memory} bytes cannot be"]
    assert device(memory=2**63 - 1).capacity["memory"].value == "9223372036854775807"


@pytest.mark.parametrize("units", [0, -1, 2**63])
def test_an_impossible_number_of_compute_units_is_left_out(units: int):
    assert "computeUnits" not in device(compute_units=units).capacity
    assert device(compute_units=304).capacity["computeUnits"].value == "304"


def test_the_engines_that_a_mig_instance_has():
    """By NVIDIA's names. Those that it lacks are left out."""
    engines = Engines(copy=3, decoders=2, encoders=0, jpeg=1, optical_flow=1)
    values = {name: capacity.value for name, capacity in device(engines=engines).capacity.items()}
    assert values == {
        "copyEngines": "3",
        "decoders": "2",
        "jpegEngines": "1",
        "memory": "0",
        "ofaEngines": "1",
    }
    assert device(engines=Engines(encoders=4)).capacity["encoders"].value == "4"


@pytest.mark.parametrize(("name", "fact"), [("iommuGroup", "iommu_group"), ("tiles", "tiles")])
def test_a_number_out_of_bounds_is_left_out_and_named(name: str, fact: str):
    for value in (0, 2**63 - 1):
        assert device(**{fact: value}).attributes[name].int_ == value
    for value in (-1, 2**63):
        built, problems = describe(**{fact: value})
        assert name not in built.attributes
        assert problems == [f"gpu-0000-01-00-0: {name} left out: {value} is out of bounds"]


@pytest.mark.parametrize(
    ("node", "published", "problems"),
    [
        (None, None, []),
        (-1, None, []),
        (0, {"int": 0}, []),
        (2**63 - 1, {"int": 2**63 - 1}, []),
        (-2, None, ["-2 is no node's number"]),
        (2**63, None, [f"{2**63} is no node's number"]),
    ],
)
def test_a_numa_node(node: int | None, published: dict[str, int] | None, problems: list[str]):
    name = "resource.kubernetes.io/numaNode"
    built, named = describe(numa_node=node)
    attribute = built.attributes.get(name)
    assert (msgspec.to_builtins(attribute) if attribute else None) == published
    assert named == [f"gpu-0000-01-00-0: {name} left out: {problem}" for problem in problems]


def test_numa_nodes_as_a_list_by_option_only():
    for option, value in ((False, {"int": 1}), (True, {"ints": [1, 0]})):
        built = devices.of_gpu(gpu(numa_node=1, numa_nodes=(1, 0)), [], numa_list=option)
        attribute = built.attributes["resource.kubernetes.io/numaNode"]
        assert msgspec.to_builtins(attribute) == value


def test_a_text_of_another_form_is_left_out_with_an_example():
    built, problems = describe(pcie_root="0000:40", address="41:00.0")
    assert not {"resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/pciBusID"} & set(
        built.attributes
    )
    assert problems == [
        "gpu-0000-01-00-0: resource.kubernetes.io/pciBusID left out: "
        "'41:00.0' is not of the form 0000:41:00.0",
        "gpu-0000-01-00-0: resource.kubernetes.io/pcieRoot left out: "
        "'0000:40' is not of the form pci0000:40",
    ]


def test_a_gpu_takes_all_of_its_counters_and_a_part_some_of_its_gpus():
    whole = devices.of_gpu(gpu(counters=(("parts", 8),)), [])
    part = devices.of_gpu(gpu(parent="gpu-0000-00-00-0", counters=(("parts", 1),)), [])
    for built, counter_set, value in (
        (whole, "gpu-0000-01-00-0", "8"),
        (part, "gpu-0000-00-00-0", "1"),
    ):
        (taken,) = built.consumes_counters
        assert taken.counter_set == counter_set
        assert {name: counter.value for name, counter in taken.counters.items()} == {"parts": value}
    assert devices.of_gpu(gpu(counters=(("parts", 8),)), [], counters=False).consumes_counters == []
    assert device().consumes_counters == []


@pytest.mark.parametrize(
    ("integrated", "word", "flag"),
    [(True, "integrated", True), (False, "discrete", False), (None, "unknown", False)],
)
def test_where_it_is_as_a_word_and_as_a_flag(integrated: bool | None, word: str, flag: bool):
    attributes = device(integrated=integrated).attributes
    assert attributes["placement"].string == word
    assert attributes["integrated"].bool_ is flag


def test_what_a_machine_is_built_around_is_not_integrated_to_those_who_want_none():
    attributes = device(integrated=True, is_package=True).attributes
    assert attributes["placement"].string == "package"
    assert attributes["integrated"].bool_ is False


# ---------------------------------------------------------------- on every device


def kind_of(attribute: DeviceAttribute) -> str:
    ((kind, _),) = msgspec.to_builtins(attribute).items()
    return str(kind)


KINDS = {name: kind_of(attribute) for name, attribute in device().attributes.items()}


def has_core(built: Device) -> bool:
    """Every attribute that selectors may read unguarded, of the kind that it always has."""
    kinds = {name: kind_of(attribute) for name, attribute in built.attributes.items()}
    same = all(kinds.get(name) == KINDS[name] for name in devices.CORE)
    return same and set(devices.CORE_CAPACITIES) <= set(built.capacity)


def test_a_gpu_of_which_nothing_is_known_has_the_core_set_and_no_more():
    built, problems = describe()
    assert not problems
    optional = {"resource.kubernetes.io/pciBusID"}
    assert set(built.attributes) - optional == set(devices.CORE)
    assert has_core(built)


@pytest.mark.parametrize("path", ROOTS, ids=lambda path: path.stem)
def test_every_device_of_every_tree_has_the_core_set(path: Path, tmp_path: Path):
    fake.write(tmp_path, fake.parse(json.loads(path.read_text())["tree"]))
    gpus = scan.scan(Roots.in_folder(tmp_path), Rules(vfio=True)).gpus
    for known in gpus:
        assert has_core(devices.of_gpu(known, [])), known.name


@pytest.mark.parametrize("model", samples.parameters([[model] for model in fake.MODELS]))
@pytest.mark.parametrize("driver", ["", ",driver=vfio-pci"])
def test_every_model_has_the_core_set(model: str, driver: str, tmp_path: Path):
    fake.write(tmp_path, fake.parse([f"{model}{driver}"]))
    gpus = scan.scan(Roots.in_folder(tmp_path), Rules(vfio=True)).gpus
    assert bool(gpus) == fake.MODELS[model].is_gpu
    for known in gpus:
        assert has_core(devices.of_gpu(known, [])), known.name


def test_what_a_mig_instance_has_too_much_of_is_left_out_in_order():
    """The core set stays, and so do the fabric and, of the engines, those that decode."""
    (how,) = sharing.parse(["nvidia=shares:4"])
    part = gpu(
        kind="partition",
        parent="gpu-0000-01-00-0",
        driver_version="580.95.05",
        uuid="MIG-1",
        profile="7g.180gb",
        architecture="sm_100",
        memory=1 << 37,
        compute_units=144,
        engines=Engines(copy=8, decoders=7, encoders=1, jpeg=7, optical_flow=1),
        numa_node=0,
        pcie_root="pci0000:01",
        vbios="97",
        iommu_group=4,
        most_virtual=8,
        setup=Setup(kernel_module="open", gpu_direct="dmabuf", ecc=True),
        fabric=Fabric(domain="nvlink-1", state="completed"),
    )
    built = devices.of_gpu(part, [], shared=how.sharing)
    assert len(built.attributes) + len(built.capacity) == limits.ATTRIBUTES_AND_CAPACITIES
    assert has_core(built)
    assert "fabric" in built.attributes
    assert not set(devices.SPARE) & set(built.attributes)
    assert set(built.capacity) == {
        "computeUnits",
        "copyEngines",
        "decoders",
        "encoders",
        "memory",
        "shares",
    }


texts = st.none() | st.text(max_size=80)
numbers = st.none() | st.integers(-2, 2**64)


@pytest.mark.sampled
@settings(max_examples=samples.share(200), deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "vendor": st.text(max_size=70),
            "driver": st.text(max_size=70),
            "driver_version": texts,
            "product": texts,
            "uuid": texts,
            "profile": texts,
            "family": texts,
            "architecture": texts,
            "memory": numbers,
            "link_width": numbers,
            "link_speed": numbers,
            "integrated": st.none() | st.booleans(),
        }
    )
)
def test_whatever_the_kernel_tells_the_core_set_is_there(values: dict[str, Any]):
    assert has_core(device(**values))


def test_attributes_are_sorted_by_name():
    names = list(device(uuid="u", product="p", family="f").attributes)
    assert names == sorted(names)
