from __future__ import annotations

import pytest

from claimd_devices import symptoms, sysfs
from claimd_devices.health import DEGRADED, FAILED, NOTE, UNKNOWN, Symptom
from tests.devices.trees import Make, Tree

ADDRESS = "0000:11:00.0"


@pytest.fixture
def made(tree: Make) -> Tree:
    return tree("nvidia:l4")


def shown(made: Tree, address: str = ADDRESS) -> dict[str, Symptom]:
    return {symptom.kind: symptom for symptom in symptoms.read_gpu(made.roots, address)}


def put(made: Tree, name: str, content: str | bytes) -> None:
    """Writes a file of the GPU's folder, with a newline after text."""
    path = made.function(ADDRESS) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())


def test_a_gpu_that_is_well_shows_its_counters_alone(made: Tree) -> None:
    assert {kind: symptom.count for kind, symptom in shown(made).items()} == {
        "aer-fatal": 0,
        "aer-nonfatal": 0,
    }


@pytest.mark.parametrize(
    ("width", "most", "port", "sentence"),
    [
        (4, 16, 16, "its PCIe link has 4 of 16 lanes: check the slot, the riser and the seating"),
        (4, 16, 8, "its PCIe link has 4 of 8 lanes: check the slot, the riser and the seating"),
        (8, 16, 8, None),
        (16, 16, 16, None),
        (16, 8, 16, None),
        (8, 255, 255, None),
        (0, 16, 16, None),
    ],
)
def test_lanes_against_what_both_ends_can_do(
    made: Tree, width: int, most: int, port: int, sentence: str | None
) -> None:
    put(made, "current_link_width", str(width))
    put(made, "max_link_width", str(most))
    put(made, "../max_link_width", str(port))
    found = shown(made).get("link")
    assert (found.sentence if found else None) == sentence
    if found is not None:
        assert (found.severity, found.value) == (DEGRADED, str(width))


@pytest.mark.parametrize(
    ("speed", "most", "port", "sentence"),
    [
        ("2.5", "16.0", "16.0", "its PCIe link runs at 2.5 of 16 GT/s, which is usual while a "),
        ("2.5", "16.0", "8.0", "its PCIe link runs at 2.5 of 8 GT/s, which is usual while a GPU"),
        ("8.0", "16.0", "8.0", None),
        ("16.0", "16.0", "32.0", None),
    ],
)
def test_a_slow_link_is_a_note(
    made: Tree, speed: str, most: str, port: str, sentence: str | None
) -> None:
    put(made, "current_link_speed", f"{speed} GT/s PCIe")
    put(made, "max_link_speed", f"{most} GT/s PCIe")
    put(made, "../max_link_speed", f"{port} GT/s PCIe")
    found = shown(made).get("link-speed")
    if sentence is None:
        assert found is None
    else:
        assert found is not None
        assert found.sentence.startswith(sentence)
        assert found.severity == NOTE


def test_a_port_that_tells_no_width_says_nothing_of_the_link(made: Tree) -> None:
    put(made, "current_link_width", "4")
    put(made, "../current_link_width", "0")
    assert "link" not in shown(made)


@pytest.mark.parametrize(
    ("content", "count"),
    [("RxErr 3\nTOTAL_ERR_FATAL 7", 7), ("TOTAL_ERR_FATAL x", None), ("TOTAL_ERR_FATAL", None)],
)
def test_errors_of_the_port(made: Tree, content: str, count: int | None) -> None:
    put(made, "aer_dev_fatal", content)
    found = shown(made).get("aer-fatal")
    assert (found.count if found else None) == count
    if found is not None:
        assert found.severity == FAILED


def test_errors_that_were_not_fatal_degrade(made: Tree) -> None:
    put(made, "aer_dev_nonfatal", "TLP 1\nTOTAL_ERR_NONFATAL 1")
    found = shown(made)["aer-nonfatal"]
    assert (found.severity, found.count) == (DEGRADED, 1)


def test_uncorrectable_errors_of_all_blocks_are_one_count(made: Tree) -> None:
    put(made, "ras/umc_err_count", "ue: 2\nce: 100")
    put(made, "ras/gfx_err_count", "ue: 3\nce: 0")
    put(made, "ras/sdma_err_count", "nothing")
    put(made, "ras/features", "ue: 50")
    found = shown(made)["ras"]
    assert (found.count, found.severity) == (5, FAILED)


@pytest.mark.parametrize(
    ("now", "critical", "is_hot"),
    [
        ("100000", "100000", True),
        ("99999", "100000", False),
        ("103400", "100000", True),
        ("50000", "0", False),
        ("50000", "-1", False),
        ("x", "1", False),
        ("1", "x", False),
    ],
)
def test_a_sensor_at_its_critical_temperature(
    made: Tree, now: str, critical: str, is_hot: bool
) -> None:
    put(made, "hwmon/hwmon3/temp2_input", now)
    put(made, "hwmon/hwmon3/temp2_crit", critical)
    put(made, "hwmon/hwmon3/temp2_label", "mem")
    put(made, "hwmon/hwmon3/fan1_input", "999999")
    assert ("hot" in shown(made)) is is_hot
    if now == "103400":
        sentence = "mem is 103 °C, at or above the critical 100 °C"
        assert shown(made)["hot"].sentence == sentence
        (made.function(ADDRESS) / "hwmon/hwmon3/temp2_label").unlink()
        assert shown(made)["hot"].sentence.startswith("its temperature is 103 °C")


@pytest.mark.parametrize(
    ("mode", "is_shown"), [("0", False), ("disabled", False), ("Boot", True), ("1", True)]
)
def test_survivability_mode(made: Tree, mode: str, is_shown: bool) -> None:
    put(made, "survivability_mode", mode)
    assert ("survivability" in shown(made)) is is_shown


def test_a_configuration_space_of_ones_is_all_there_is_to_say(made: Tree) -> None:
    put(made, "config", b"\xff" * 64)
    (symptom,) = symptoms.read_gpu(made.roots, ADDRESS)
    assert (symptom.kind, symptom.severity) == ("lost", FAILED)
    put(made, "config", b"")
    assert "lost" not in shown(made)
    put(made, "config", b"\xff\xff\x30\x23")
    assert "lost" not in shown(made)


def test_files_that_are_padded_as_tar_does_are_read(made: Tree) -> None:
    put(made, "aer_dev_fatal", b"TOTAL_ERR_FATAL 7\n".ljust(4096, b"\0"))
    put(made, "current_link_width", b"4\n".ljust(4096, b"\0"))
    found = shown(made)
    assert found["aer-fatal"].count == 7
    assert found["link"].value == "4"


def test_files_that_fail_are_named(made: Tree) -> None:
    for name in ("config", "aer_dev_fatal"):
        path = made.function(ADDRESS) / name
        path.unlink()
        path.symlink_to("/proc/self/mem")
    found = shown(made)["unreadable"]
    assert found.sentence.startswith("reading config, aer_dev_fatal fails with input/output errors")
    assert found.severity == FAILED


def test_a_gpu_whose_files_hang(made: Tree) -> None:
    found = symptoms.unresponsive()
    assert (found.kind, found.severity) == ("unresponsive", UNKNOWN)
    assert "a read has not come back for 2 s" in found.sentence


def test_of_no_gpus_there_is_nothing(made: Tree) -> None:
    assert symptoms.read_gpus(made.roots, []) == {}


def test_parts_are_as_their_gpu_is(tree: Make) -> None:
    made = tree("amd:mi300x,mode=dpx")
    whole, *parts = made.scan().gpus
    (made.function(whole.address) / "config").write_bytes(b"\xff" * 64)
    found = symptoms.read_gpus(made.roots, [whole, *parts])
    assert list(found) == [whole.name, *(part.name for part in parts)]
    assert {shown[0].kind for shown in found.values()} == {"lost"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("power/runtime_status", "suspended"),
        ("power_state", "D3hot"),
        ("power_state", "D3cold"),
    ],
)
def test_of_a_sleeping_gpu_nothing_is_read_that_wakes_it(made: Tree, name: str, value: str) -> None:
    put(made, name, value)
    put(made, "hwmon/hwmon3/temp2_input", "100")
    with sysfs.recording() as accesses:
        assert symptoms.read_gpu(made.roots, ADDRESS) == ()
    folder = f"{made.roots.sys}/bus/pci/devices/{ADDRESS}/"
    files = sorted(path.removeprefix(folder) for path, _ in accesses)
    assert set(files) <= {"power/runtime_status", "power_state"}


def test_of_one_that_is_awake_it_is_read(made: Tree) -> None:
    put(made, "power/runtime_status", "active")
    with sysfs.recording() as accesses:
        symptoms.read_gpu(made.roots, ADDRESS)
    assert any(path.endswith("/config") for path, _ in accesses)
