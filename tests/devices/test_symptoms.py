from __future__ import annotations

import errno
import os
import re

import pytest

from claimd_devices import symptoms, sysfs
from claimd_devices.health import DEGRADED, FAILED, NOTE, UNKNOWN, Symptom
from tests.devices.trees import Make, Tree

ADDRESS = "0000:11:00.0"


@pytest.fixture
def tree(make_tree: Make) -> Tree:
    return make_tree("nvidia:l4")


def read_symptoms(tree: Tree, address: str = ADDRESS) -> dict[str, Symptom]:
    return {symptom.kind: symptom for symptom in symptoms.read_gpu(tree.roots, address)}


def write_file(tree: Tree, name: str, content: str | bytes) -> None:
    """Writes a file of the GPU's folder, with a newline after text."""
    path = tree.function(ADDRESS) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())


def test_a_gpu_that_is_well_shows_its_counters_alone(tree: Tree) -> None:
    assert {kind: symptom.count for kind, symptom in read_symptoms(tree).items()} == {
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
    tree: Tree, width: int, most: int, port: int, sentence: str | None
) -> None:
    write_file(tree, "current_link_width", str(width))
    write_file(tree, "max_link_width", str(most))
    write_file(tree, "../max_link_width", str(port))
    symptom = read_symptoms(tree).get("link")
    assert (symptom.sentence if symptom else None) == sentence
    if symptom is not None:
        assert (symptom.severity, symptom.value) == (DEGRADED, str(width))


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
    tree: Tree, speed: str, most: str, port: str, sentence: str | None
) -> None:
    write_file(tree, "current_link_speed", f"{speed} GT/s PCIe")
    write_file(tree, "max_link_speed", f"{most} GT/s PCIe")
    write_file(tree, "../max_link_speed", f"{port} GT/s PCIe")
    symptom = read_symptoms(tree).get("link-speed")
    if sentence is None:
        assert symptom is None
    else:
        assert symptom is not None
        assert symptom.sentence.startswith(sentence)
        assert symptom.severity == NOTE


def test_a_port_that_tells_no_width_says_nothing_of_the_link(tree: Tree) -> None:
    write_file(tree, "current_link_width", "4")
    write_file(tree, "../current_link_width", "0")
    assert "link" not in read_symptoms(tree)


@pytest.mark.parametrize(
    ("content", "count"),
    [("RxErr 3\nTOTAL_ERR_FATAL 7", 7), ("TOTAL_ERR_FATAL x", None), ("TOTAL_ERR_FATAL", None)],
)
def test_errors_of_the_port(tree: Tree, content: str, count: int | None) -> None:
    write_file(tree, "aer_dev_fatal", content)
    symptom = read_symptoms(tree).get("aer-fatal")
    assert (symptom.count if symptom else None) == count
    if symptom is not None:
        assert symptom.severity == FAILED


def test_errors_that_were_not_fatal_degrade(tree: Tree) -> None:
    write_file(tree, "aer_dev_nonfatal", "TLP 1\nTOTAL_ERR_NONFATAL 1")
    symptom = read_symptoms(tree)["aer-nonfatal"]
    assert (symptom.severity, symptom.count) == (DEGRADED, 1)


def test_uncorrectable_errors_of_all_blocks_are_one_count(tree: Tree) -> None:
    write_file(tree, "ras/umc_err_count", "ue: 2\nce: 100")
    write_file(tree, "ras/gfx_err_count", "ue: 3\nce: 0")
    write_file(tree, "ras/sdma_err_count", "nothing")
    write_file(tree, "ras/features", "ue: 50")
    symptom = read_symptoms(tree)["ras"]
    assert (symptom.count, symptom.severity) == (5, FAILED)


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
    tree: Tree, now: str, critical: str, is_hot: bool
) -> None:
    write_file(tree, "hwmon/hwmon3/temp2_input", now)
    write_file(tree, "hwmon/hwmon3/temp2_crit", critical)
    write_file(tree, "hwmon/hwmon3/temp2_label", "mem")
    write_file(tree, "hwmon/hwmon3/fan1_input", "999999")
    assert ("hot" in read_symptoms(tree)) is is_hot
    if now == "103400":
        sentence = "mem is 103 °C, at or above the critical 100 °C"
        assert read_symptoms(tree)["hot"].sentence == sentence
        (tree.function(ADDRESS) / "hwmon/hwmon3/temp2_label").unlink()
        assert read_symptoms(tree)["hot"].sentence.startswith("its temperature is 103 °C")


@pytest.mark.parametrize(
    ("mode", "is_shown"), [("0", False), ("disabled", False), ("Boot", True), ("1", True)]
)
def test_survivability_mode(tree: Tree, mode: str, is_shown: bool) -> None:
    write_file(tree, "survivability_mode", mode)
    assert ("survivability" in read_symptoms(tree)) is is_shown


def test_a_configuration_space_of_ones_is_all_there_is_to_say(tree: Tree) -> None:
    write_file(tree, "config", b"\xff" * 64)
    (symptom,) = symptoms.read_gpu(tree.roots, ADDRESS)
    assert (symptom.kind, symptom.severity) == ("lost", FAILED)
    write_file(tree, "config", b"")
    assert "lost" not in read_symptoms(tree)
    write_file(tree, "config", b"\xff\xff\x30\x23")
    assert "lost" not in read_symptoms(tree)


def test_files_that_are_padded_as_tar_does_are_read(tree: Tree) -> None:
    write_file(tree, "aer_dev_fatal", b"TOTAL_ERR_FATAL 7\n".ljust(4096, b"\0"))
    write_file(tree, "current_link_width", b"4\n".ljust(4096, b"\0"))
    symptoms_ = read_symptoms(tree)
    assert symptoms_["aer-fatal"].count == 7
    assert symptoms_["link"].value == "4"


def test_files_that_fail_are_named(tree: Tree) -> None:
    for name in ("config", "aer_dev_fatal"):
        path = tree.function(ADDRESS) / name
        path.unlink()
        path.symlink_to("/proc/self/mem")
    symptom = read_symptoms(tree)["unreadable"]
    assert symptom.sentence.startswith(
        "reading config, aer_dev_fatal fails with input/output errors"
    )
    assert symptom.severity == FAILED


def test_a_gpu_whose_files_hang(tree: Tree) -> None:
    symptom = symptoms.unresponsive()
    assert (symptom.kind, symptom.severity) == ("unresponsive", UNKNOWN)
    assert "a read has not come back for 2 s" in symptom.sentence


def test_of_no_gpus_there_is_nothing(tree: Tree) -> None:
    assert symptoms.read_gpus(tree.roots, []) == {}


def test_parts_are_as_their_gpu_is(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x,mode=dpx")
    whole, *parts = tree.scan().gpus
    (tree.function(whole.address) / "config").write_bytes(b"\xff" * 64)
    symptoms_ = symptoms.read_gpus(tree.roots, [whole, *parts])
    assert list(symptoms_) == [whole.name, *(part.name for part in parts)]
    assert {each[0].kind for each in symptoms_.values()} == {"lost"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("power/runtime_status", "suspended"),
        ("power_state", "D3hot"),
        ("power_state", "D3cold"),
    ],
)
def test_of_a_sleeping_gpu_nothing_is_read_that_wakes_it(tree: Tree, name: str, value: str) -> None:
    write_file(tree, name, value)
    write_file(tree, "hwmon/hwmon3/temp2_input", "100")
    with sysfs.recording() as accesses:
        assert symptoms.read_gpu(tree.roots, ADDRESS) == ()
    folder = f"{tree.roots.sys}/bus/pci/devices/{ADDRESS}/"
    files = sorted(path.removeprefix(folder) for path, _ in accesses)
    assert set(files) <= {"power/runtime_status", "power_state"}


def test_of_one_that_is_awake_it_is_read(tree: Tree) -> None:
    write_file(tree, "power/runtime_status", "active")
    with sysfs.recording() as accesses:
        symptoms.read_gpu(tree.roots, ADDRESS)
    assert any(path.endswith("/config") for path, _ in accesses)


@pytest.mark.parametrize(
    ("number", "is_shown"),
    [
        (errno.ETIME, True),
        (errno.ETIMEDOUT, True),
        (errno.EREMOTEIO, True),
        (errno.ENODEV, True),
        (errno.EINVAL, False),
        (errno.EPERM, False),
    ],
)
def test_sensors_that_do_not_answer(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, number: int, is_shown: bool
) -> None:
    """No file of a test fails with these errors, so the read itself is replaced."""
    for name in ("temp1_input", "temp2_input"):
        write_file(tree, f"hwmon/hwmon0/{name}", "45000")
    read = sysfs.read
    failing = re.compile(r".*/hwmon/hwmon[0-9]+/temp[0-9]+_input")

    def fail(path: str, limit: int = 4096) -> bytes:
        if failing.fullmatch(path):
            raise OSError(number, os.strerror(number), path)
        return read(path, limit)

    monkeypatch.setattr(sysfs, "read", fail)
    symptom = read_symptoms(tree).get("unreadable")
    assert (symptom is not None) is is_shown
    if symptom is not None:
        assert symptom.severity == FAILED
        assert os.strerror(number) in symptom.sentence

    # One sensor that answers shows that the controller is alive.
    failing = re.compile(r".*/hwmon/hwmon[0-9]+/temp1_input")
    assert "unreadable" not in read_symptoms(tree)


@pytest.mark.parametrize(
    ("flags", "severity", "sentence"),
    [
        ("RRR", NOTE, "bad pages of its memory: 3; not reserved: 0"),
        ("RP", DEGRADED, "bad pages of its memory: 2; not reserved: 1"),
        ("F", DEGRADED, "bad pages of its memory: 1; not reserved: 1"),
    ],
)
def test_bad_pages_of_memory(tree: Tree, flags: str, severity: str, sentence: str) -> None:
    pages = [f"0x{number:08x} : 0x00001000 : {flag}" for number, flag in enumerate(flags)]
    write_file(tree, "ras/gpu_vram_bad_pages", "\n".join(pages))
    symptom = read_symptoms(tree)["bad-pages"]
    assert (symptom.severity, symptom.sentence) == (severity, sentence)

    write_file(tree, "ras/gpu_vram_bad_pages", "")
    assert "bad-pages" not in read_symptoms(tree)
