from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimd_devices import kmsg, symptoms, sysfs
from claimd_devices.health import BOUND, DEGRADED, FAILED, NOTE, UNKNOWN, Event, Symptom
from claimd_devices.kmsg import Line
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


# ---------------------------------------------------------------- the kernel's log

XID = "NVRM: Xid (PCI:0000:41:00): {}, pid=1234, name=python3, Ch 00000008"


@pytest.mark.parametrize(
    ("text", "address", "kind", "severity"),
    [
        (XID.format(79), "0000:41:00.0", "xid", FAILED),
        (XID.format(31), "0000:41:00.0", "xid", NOTE),
        (XID.format(13), "0000:41:00.0", "xid", NOTE),
        (XID.format(9999), "0000:41:00.0", "xid", DEGRADED),
        ("NVRM: Xid (PCI:10000:e1:00): 48, DBE", "10000:e1:00.0", "xid", FAILED),
        ("NVRM: Xid (PCI:0000:41:00.0): 48", "0000:41:00.0", "xid", FAILED),
        ("NVRM: Xid (PCI:0000:C1:00): 79, x", "0000:c1:00.0", "xid", FAILED),
        ("xe 0000:03:00.0: [drm] device wedged, needs recovery", "0000:03:00.0", "wedged", FAILED),
        ("nvidia 0000:41:00.0: enabling device (0000 -> 0003)", "0000:41:00.0", BOUND, NOTE),
        (
            "[drm] Initialized xe 1.1.0 20201103 for 0000:03:00.0 on minor 0",
            "0000:03:00.0",
            BOUND,
            NOTE,
        ),
        (
            "amdgpu 0000:03:00.0: [drm] Initialized amdgpu 3.64.0 for 0000:03:00.0 on minor 1",
            "0000:03:00.0",
            BOUND,
            NOTE,
        ),
    ],
)
def test_what_a_line_says(text: str, address: str, kind: str, severity: str) -> None:
    event = symptoms.event_of(Line(at=7.0, text=text))
    assert event is not None
    assert (event.address, event.kind, event.severity, event.at) == (address, kind, severity, 7.0)


@pytest.mark.parametrize(
    ("place", "code", "severity", "instance"),
    [
        ("PCI:0000:41:00 GPU-I:05", 94, DEGRADED, 5),
        ("PCI:0000:41:00 GPU-I:05 GPU-CI:00", 46, FAILED, 5),
        ("PCI:0000:41:00 GPU-I:13", 31, NOTE, 13),
        # An uncontained error reaches all instances, whichever is named.
        ("PCI:0000:41:00 GPU-I:08", 95, FAILED, None),
        ("PCI:0000:41:00", 94, DEGRADED, None),
    ],
)
def test_a_line_that_names_a_mig_instance(
    place: str, code: int, severity: str, instance: int | None
) -> None:
    event = symptoms.event_of(Line(at=7.0, text=f"NVRM: Xid ({place}): {code}, pid=1, name=x"))
    assert event is not None
    assert (event.address, event.kind) == ("0000:41:00.0", "xid")
    assert (event.value, event.severity, event.instance) == (str(code), severity, instance)


@pytest.mark.parametrize(
    ("action", "kind", "severity"),
    [
        ("0x1 (GPU Reset Required)", "xid", FAILED),
        ("0x2 (Node Reboot Required)", "xid", FAILED),
        ("0x3 (Drain P2P)", "xid", DEGRADED),
        ("0x4 (Drain and Reset)", "xid", FAILED),
        ("0x9 (A Name Of Newer Drivers)", "xid", FAILED),
        ("0x0 (None)", BOUND, NOTE),
    ],
)
def test_the_driver_s_own_verdict(action: str, kind: str, severity: str) -> None:
    changed = (
        f"NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x7 (X) to {action}"
    )
    event = symptoms.event_of(Line(at=7.0, text=changed))
    assert event is not None
    assert (event.kind, event.severity, event.lasts) == (kind, severity, None)


@pytest.mark.parametrize(
    "text",
    [
        "xe 0000:03:00.0: [drm] device wedged, but recovered through reset",
        "xe 0000:03:00.0: [drm] device wedged, but no recovery needed",
        "NVRM: GPU at PCI:0000:41:00: GPU-83e5bdb5",
        "NVRM: loading NVIDIA UNIX Open Kernel Module",
        "NVRM: Xid (PCI:0000:41:00): many",
        "",
    ],
)
def test_what_is_no_news_of_a_gpu_s_health(text: str) -> None:
    assert symptoms.event_of(Line(at=7.0, text=text)) is None


def test_a_line_about_another_device_than_it_names_is_nothing() -> None:
    text = "xe 0000:03:00.0: [drm] device wedged, needs recovery"
    for device, is_event in (("+pci:0000:03:00.0", True), ("+pci:0000:04:00.0", False)):
        event = symptoms.event_of(Line(at=7.0, text=text, device=device))
        assert (event is not None) is is_event


def test_what_xids_mean() -> None:
    by_program = symptoms.event_of(Line(at=1.0, text=XID.format(31)))
    of_hardware = symptoms.event_of(Line(at=1.0, text=XID.format(79)))
    unknown = symptoms.event_of(Line(at=1.0, text=XID.format(9999)))
    assert by_program and of_hardware and unknown
    assert by_program.sentence.endswith(
        "Xid 31: a fault of the program that used it, not of the GPU"
    )
    assert of_hardware.sentence.endswith("Xid 79: the GPU has fallen off the bus")
    assert unknown.sentence.endswith("Xid 9999: see NVIDIA's list of Xid errors")
    assert [event.lasts for event in (by_program, of_hardware, unknown)] == [600, 3600, 600]
    assert (of_hardware.value, of_hardware.kind) == ("79", "xid")


@pytest.mark.parametrize(
    ("methods", "advice"),
    [
        ("", "(wedged)"),
        ("rebind,bus-reset", "(wedged); the kernel advises: rebind, bus-reset"),
        ("none,rebind", "(wedged); the kernel advises: rebind"),
    ],
)
def test_what_would_help_a_wedged_gpu(methods: str, advice: str) -> None:
    event = symptoms.wedged_event(ADDRESS, methods, 5.0)
    assert event is not None
    assert event.sentence.endswith(advice)
    assert (event.kind, event.severity, event.lasts, event.at) == ("wedged", FAILED, None, 5.0)


@pytest.mark.parametrize("methods", ["none", "none,", ","])
def test_a_gpu_that_has_helped_itself(methods: str) -> None:
    assert symptoms.wedged_event(ADDRESS, methods, 5.0) is None


def test_vfio_pci_sets_nothing_up() -> None:
    """The history of a GPU does not end because a virtual machine opens it."""
    line = Line(at=7.0, text="vfio-pci 0000:41:00.0: enabling device (0000 -> 0003)")
    assert symptoms.event_of(line) is None


# ---------------------------------------------------------------- lines that are forged
#
# An unprivileged container can put text into the kernel's log: the names of its programs (15 bytes)
# and files (255 bytes), with any byte except NUL and, for files, the slash.

REAL = [
    XID.format(79),
    "xe 0000:41:00.0: [drm] device wedged, needs recovery",
    "nvidia 0000:41:00.0: enabling device (0000 -> 0003)",
    "[drm] Initialized xe 1.1.0 20201103 for 0000:41:00.0 on minor 0",
]
IN_KERNEL_LINES = [
    "{program}[4711]: segfault at 0 ip 000055 sp 00007f error 4 in {file}[55555+1000]",
    "{program}[4711]: segfault at 0 ip 000055 sp 00007f error 4",
    "traps: {program}[4711] general protection fault ip:5 sp:7 error:0 in {file}[5+1]",
    "process '{file}' started with executable stack",
    "{program} (4711): drop_caches: 3",
    "{program} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=999",
    "Memory cgroup out of memory: Killed process 4711 ({program}) total-vm:1kB",
    "oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/kubepods/{file},task={program},pid=1",
    'audit: type=1400 audit(1.1:1): apparmor="DENIED" name="{file}" comm="{program}"',
    "EXT4-fs (loop0): mounted filesystem {file} r/w with ordered data mode",
]
GLUE = [
    "",
    " ",
    "\n",
    "\r",
    "\r\n",
    "\v",
    "\f",
    "\x1c",
    "\x85",
    "\u2028",
    ": ",
    "]",
    "[drm] ",
    ";",
    "\\",
]
PREFIXES = ["", "<3>[   12.000001] ", "3,1,12000001,-;", "6,99,1,-;", " DEVICE=+pci:0000:41:00.0\n"]


def as_records(text: str, *, facility: int = 0, flag: str = "-") -> str:
    """Returns a record of /dev/kmsg, in which the kernel escapes unprintable bytes."""
    escaped = ""
    for byte in text.encode():
        is_plain = 32 <= byte < 127 and byte != ord("\\")
        escaped += chr(byte) if is_plain else f"\\x{byte:02x}"
    return f"{facility * 8 + 6},1,12000001,{flag};{escaped}"


def as_dmesg(text: str, *, facility: int = 0) -> str:
    """Returns the same for dmesg: each line of the text has the prefix of the record."""
    prefix = f"<{facility * 8 + 6}>[   12.000001] "
    return "\n".join(prefix + line for line in text.split("\n")) + "\n"


def events(records: str, dmesg: str) -> list[Event | None]:
    lines = kmsg.parse_records(records.split("\n"), 0.0) + kmsg.parse_dmesg(dmesg, 0.0)
    return [event for event in map(symptoms.event_of, lines) if event is not None]


@pytest.mark.parametrize("text", REAL)
def test_what_the_kernel_itself_writes_is_believed(text: str) -> None:
    assert len(events(as_records(text), as_dmesg(text))) == 2


@pytest.mark.parametrize("text", REAL)
def test_what_a_program_writes_is_not(text: str) -> None:
    assert events(as_records(text, facility=1), as_dmesg(text, facility=1)) == []
    assert events(as_records(text, facility=23), as_dmesg(text, facility=23)) == []


@pytest.mark.parametrize("text", REAL)
@pytest.mark.parametrize("flag", ["c", "+"])
def test_what_goes_on_another_s_line_is_not(text: str, flag: str) -> None:
    assert events(as_records(text, flag=flag), "") == []


def test_ten_thousand_forged_lines_change_nothing() -> None:
    dice = random.Random(11)
    for _ in range(10_000):
        text = forged(dice)
        assert events(as_records(text), as_dmesg(text)) == [], repr(text)


def forged(dice: random.Random) -> str:
    payload = ""
    for _ in range(dice.randrange(1, 4)):
        payload += dice.choice(GLUE) + dice.choice(PREFIXES) + dice.choice(REAL)
        payload += dice.choice(GLUE)
    at = dice.randrange(len(payload)) if dice.random() < 0.3 else 0
    program = dice.choice([payload, *REAL, payload[at:]])[:15]
    file = payload[at:].replace("/", "_")[:255]
    return dice.choice(IN_KERNEL_LINES).format(program=program, file=file)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=15), st.text(max_size=255), st.sampled_from(IN_KERNEL_LINES), st.data())
def test_no_name_of_a_program_or_file_makes_an_event(
    program: str, file: str, line: str, data: st.DataObject
) -> None:
    real = data.draw(st.sampled_from(REAL))
    cut = data.draw(st.integers(0, len(file)))
    file = re.sub(r"[/\x00]", "", file[:cut] + real + file[cut:])
    text = line.format(program=program.replace("\x00", ""), file=file)
    text = text.encode(errors="replace").decode(errors="replace")
    assert events(as_records(text), as_dmesg(text)) == []
