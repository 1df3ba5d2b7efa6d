"""Lines of the kernel's log: events of real ones, and nothing from forged ones."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimd_devices import kmsg, log_lines
from claimd_devices.health import BOUND, DEGRADED, FAILED, NOTE, Event
from claimd_devices.kmsg import Line
from tests.support import samples

ADDRESS = "0000:11:00.0"
CASES = Path(__file__).parents[1] / "cases"

XID = "NVRM: Xid (PCI:0000:41:00): {}, pid=1234, name=python3, Ch 00000008"


@pytest.mark.parametrize(
    ("text", "address", "kind", "severity"),
    [
        (XID.format(79), "0000:41:00.0", "xid", FAILED),
        (XID.format(31), "0000:41:00.0", "xid", NOTE),
        (XID.format(13), "0000:41:00.0", "xid", NOTE),
        (XID.format(109), "0000:41:00.0", "xid", FAILED),
        (XID.format(90), "0000:41:00.0", "xid", DEGRADED),
        (XID.format(9999), "0000:41:00.0", "xid", NOTE),
        ("NVRM: Xid (0000:41:00): 13, 0005 00000000 0000502d", "0000:41:00.0", "xid", NOTE),
        ("NVRM: Xid (PCI:10000:e1:00): 48, DBE", "10000:e1:00.0", "xid", FAILED),
        ("NVRM: Xid (PCI:0000:41:00.0): 48", "0000:41:00.0", "xid", FAILED),
        ("NVRM: Xid (PCI:0000:C1:00): 79, x", "0000:c1:00.0", "xid", FAILED),
        ("xe 0000:03:00.0: [drm] device wedged, needs recovery", "0000:03:00.0", "wedged", FAILED),
        ("nvidia 0000:41:00.0: enabling device (0000 -> 0003)", "0000:41:00.0", BOUND, NOTE),
        (
            "NVRM: Attempting to remove device 0000:41:00.0 with non-zero usage count!",
            "0000:41:00.0",
            "lost",
            FAILED,
        ),
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
    event = log_lines.event_of(Line(at=7.0, text=text))
    assert event is not None
    assert (event.address, event.kind, event.severity, event.at) == (address, kind, severity, 7.0)


@pytest.mark.parametrize(
    ("place", "code", "severity", "instance"),
    [
        ("PCI:0000:41:00 GPU-I:05", 94, NOTE, 5),
        ("PCI:0000:41:00 GPU-I:05 GPU-CI:00", 46, FAILED, 5),
        ("PCI:0000:41:00 GPU-I:13", 31, NOTE, 13),
        # An uncontained error reaches all instances, whichever is named.
        ("PCI:0000:41:00 GPU-I:08", 95, FAILED, None),
        ("PCI:0000:41:00", 94, NOTE, None),
    ],
)
def test_a_line_that_names_a_mig_instance(
    place: str, code: int, severity: str, instance: int | None
) -> None:
    event = log_lines.event_of(Line(at=7.0, text=f"NVRM: Xid ({place}): {code}, pid=1, name=x"))
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
        ("0x5 (Recover IMEX Domain)", "xid", DEGRADED),
        ("0x9 (A Name Of Newer Drivers)", "xid", FAILED),
        ("0x0 (None)", BOUND, NOTE),
    ],
)
def test_the_driver_s_own_verdict(action: str, kind: str, severity: str) -> None:
    changed = f"GPU recovery action changed from 0x7 (X) to {action}"
    for program in ("", "pid=4711, name=nvidia-smi, "):
        text = f"NVRM: Xid (PCI:0000:41:00): 154, {program}{changed}"
        event = log_lines.event_of(Line(at=7.0, text=text))
        assert event is not None
        assert (event.kind, event.severity, event.lasts) == (kind, severity, None)


@pytest.mark.parametrize(
    ("details", "severity"),
    [
        ("NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000)", FAILED),
        ("pid=4711, name=python3, SAW_MVB Fatal XC0 i0 Link 09 (0x1)", FAILED),
        ("RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000004 0x00000040)", DEGRADED),
        ("", DEGRADED),
        # The name of a program may be any text.
        ("pid=4711, name=a,X Fatal XC0 i, RLW_REMAP Nonfatal XC1 i0 Link 10", DEGRADED),
        ("pid=4711, name=X Fatal, RLW_REMAP Nonfatal XC1 i0 Link 10", DEGRADED),
    ],
)
def test_an_nvlink_error_says_whether_it_is_fatal(details: str, severity: str) -> None:
    for code in range(144, 151):
        text = f"NVRM: Xid (PCI:0018:01:00): {code}, {details}"
        event = log_lines.event_of(Line(at=7.0, text=text))
        assert event is not None
        assert event.severity == severity
    other = log_lines.event_of(Line(at=7.0, text=f"NVRM: Xid (PCI:0018:01:00): 137, {details}"))
    assert other is not None
    assert other.severity == NOTE


def test_a_verdict_that_a_program_made_up_is_none() -> None:
    """A program chooses its name, which stands before the driver's words."""
    name = "a, GPU recovery action changed from 0x1 (X) to 0x0 (None)"
    text = f"NVRM: Xid (PCI:0000:41:00): 154, pid=4711, name={name}, x"
    event = log_lines.event_of(Line(at=7.0, text=text))
    assert event is not None
    assert (event.kind, event.severity) == ("xid", NOTE)


def judgement(text: str) -> str:
    """Returns the judgement of a line as tests/cases/kernel_lines.tsv names it."""
    event = log_lines.event_of(Line(at=7.0, text=text))
    if event is None:
        return "nothing"
    return "ends" if event.kind == BOUND else event.severity


def cases() -> list[list[str]]:
    lines = (CASES / "kernel_lines.tsv").read_text().splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def test_lines_from_kernels_and_public_threads() -> None:
    assert len(cases()) >= 250
    wrong = []
    for expected, source, text in cases():
        if judgement(text) != expected:
            wrong.append((expected, judgement(text), source, text))
    assert wrong == []


def test_a_failed_line_tells_a_person_what_has_happened() -> None:
    for expected, _, text in cases():
        event = log_lines.event_of(Line(at=7.0, text=text))
        if expected != "failed" or event is None:
            continue
        assert len(event.sentence) > 40
        assert event.lasts is None, "a failed GPU does not heal by the clock"


def test_a_fatal_sxid_is_about_all_gpus_of_nvidia() -> None:
    text = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
    fatal = log_lines.event_of(Line(at=7.0, text=text))
    assert fatal is not None
    assert (fatal.vendor, fatal.kind, fatal.value) == ("nvidia", "sxid", "20034")
    assert "restart the Fabric Manager" in fatal.sentence

    mild = log_lines.event_of(Line(at=7.0, text=text.replace("Fatal", "Non-fatal")))
    assert mild is not None
    assert (mild.severity, mild.lasts) == (NOTE, 600)


def test_other_words_about_a_gpu_that_fell_off_the_bus_are_xid_79() -> None:
    (xid, words) = (
        log_lines.event_of(Line(at=7.0, text=text))
        for text in (XID.format(79), "NVRM: GPU 0000:41:00.0: GPU has fallen off the bus.")
    )
    assert xid == words


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
    assert log_lines.event_of(Line(at=7.0, text=text)) is None


def test_a_port_reports_an_error_of_the_gpu_below_it() -> None:
    text = "pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error received: 0000:41:00.0"
    for device, is_event in (("+pci:0000:40:01.1", True), ("+pci:0000:41:00.0", False)):
        event = log_lines.event_of(Line(at=7.0, text=text, device=device))
        assert (event is not None) is is_event
        assert event is None or (event.address, event.kind) == ("0000:41:00.0", "aer-fatal")


def test_an_xid_with_a_domain_of_eight_digits_names_the_same_gpu() -> None:
    event = log_lines.event_of(Line(at=7.0, text="NVRM: Xid (PCI:00010000:41:00): 79, x"))
    assert event is not None
    assert event.address == "10000:41:00.0"


def test_a_line_about_another_device_than_it_names_is_nothing() -> None:
    text = "xe 0000:03:00.0: [drm] device wedged, needs recovery"
    for device, is_event in (("+pci:0000:03:00.0", True), ("+pci:0000:04:00.0", False)):
        event = log_lines.event_of(Line(at=7.0, text=text, device=device))
        assert (event is not None) is is_event


def test_what_xids_mean() -> None:
    by_program = log_lines.event_of(Line(at=1.0, text=XID.format(31)))
    of_hardware = log_lines.event_of(Line(at=1.0, text=XID.format(79)))
    unknown = log_lines.event_of(Line(at=1.0, text=XID.format(9999)))
    assert by_program and of_hardware and unknown
    assert by_program.sentence == (
        "the NVIDIA driver reported Xid 31 (ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT): "
        "a program accessed a wrong address of the GPU's memory; restart the program"
    )
    assert of_hardware.sentence.endswith(
        "Xid 79 (ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS): "
        "the GPU has fallen off the bus; reboot the node"
    )
    assert unknown.sentence.endswith(
        "Xid 9999: it is not in NVIDIA's catalog; see the line in the kernel's log"
    )
    assert [event.lasts for event in (by_program, of_hardware, unknown)] == [600, None, 600]
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
    event = log_lines.wedged_event(ADDRESS, methods, 5.0)
    assert event is not None
    assert event.sentence.endswith(advice)
    assert (event.kind, event.severity, event.lasts, event.at) == ("wedged", FAILED, None, 5.0)


@pytest.mark.parametrize("methods", ["none", "none,", ","])
def test_a_gpu_that_has_helped_itself(methods: str) -> None:
    assert log_lines.wedged_event(ADDRESS, methods, 5.0) is None


def test_vfio_pci_sets_nothing_up() -> None:
    """The history of a GPU does not end because a virtual machine opens it."""
    line = Line(at=7.0, text="vfio-pci 0000:41:00.0: enabling device (0000 -> 0003)")
    assert log_lines.event_of(line) is None


# ---------------------------------------------------------------- lines that are forged
#
# An unprivileged container can put text into the kernel's log: the names of its programs (15 bytes)
# and files (255 bytes), with any byte except NUL and, for files, the slash.

REAL = [
    XID.format(79),
    "xe 0000:41:00.0: [drm] device wedged, needs recovery",
    "nvidia 0000:41:00.0: enabling device (0000 -> 0003)",
    "[drm] Initialized xe 1.1.0 20201103 for 0000:41:00.0 on minor 0",
    "NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x1 (X) to 0x0 (None)",
    "NVRM: Xid (PCI:0000:41:00 GPU-I:05 GPU-CI:00): 46, pid=1, name=x",
    "NVRM: GPU 0000:41:00.0: RmInitAdapter failed! (0x22:0x56:894)",
    "NVRM: GPU 0000:41:00.0: GPU has fallen off the bus.",
    "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "amdgpu 0000:41:00.0: amdgpu: GPU reset(2) succeeded!",
    "amdgpu 0000:41:00.0: amdgpu: GPU reset(1) failed",
    "amdgpu 0000:41:00.0: amdgpu: RAS records:130 exceed threshold:128",
    "xe 0000:41:00.0: [drm] *ERROR* CRITICAL: Xe has declared device 0000:41:00.0 as wedged.",
    "xe 0000:41:00.0: [drm] *ERROR* GT0: reset failed (-ETIMEDOUT)",
    "xe 0000:41:00.0: [drm] *ERROR* [Hardware Error]: Tile0 reported FATAL error 0x20000",
    "i915 0000:41:00.0: [drm] *ERROR* Failed to reset chip",
    "NVRM: GPU at 0000:41:00.0 has fallen off the bus.",
    "NVRM: The NVIDIA GPU 0000:41:00.0 (PCI ID: 10de:2757) has fallen off the bus",
    "nvidia 0000:41:00.0: probe with driver nvidia failed with error -1",
    "amdgpu: probe of 0000:41:00.0 failed with error -22",
    "nvidia 0000:41:00.0: Unable to change power state from D3cold to D0, device inaccessible",
    "vfio-pci 0000:41:00.0: not ready 65535ms after bus reset; giving up",
    "nvidia 0000:41:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer",
    "nvidia 0000:41:00.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction",
    "pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error received: 0000:41:00.0",
    "amdgpu 0000:41:00.0: amdgpu: Fatal error during GPU init",
    "amdgpu 0000:41:00.0: amdgpu: SMU: I'm not done with your previous command",
    "amdgpu 0000:41:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
    "amdgpu 0000:41:00.0: The cp might be in an unrecoverable state",
    "xe 0000:41:00.0: Runtime Survivability mode enabled",
    "amdgpu 0000:41:00.0: amdgpu: ERROR: GPU HW Critical Temperature Fault(aka CTF) detected!",
    "pcieport 0000:40:01.1: DPC: containment event, status:0x000d, ERR_FATAL received from 0000:41:00.0",
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
    return [event for event in map(log_lines.event_of, lines) if event is not None]


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


def test_every_kind_of_line_is_forged() -> None:
    """A new pattern needs a line in REAL, so that the tests below imitate it."""
    kinds = set()
    for text in REAL:
        (event,) = {log_lines.event_of(Line(at=1.0, text=text))}
        assert event is not None
        kinds.add(event.kind)
    known = {log_lines.event_of(Line(at=1.0, text=text)) for _, _, text in cases()}
    assert kinds == {event.kind for event in known if event is not None}


# Every line that means something, so that a new pattern is forged as soon as it has a case.
IMITATED = REAL + [text for expected, _, text in cases() if expected != "nothing"]


def test_ten_thousand_forged_lines_change_nothing() -> None:
    dice = random.Random(11)
    for _ in range(10_000):
        text = forged(dice)
        assert events(as_records(text), as_dmesg(text)) == [], repr(text)


# Lines of drivers that begin with the name of a program, or contain it.
IN_DRIVER_LINES = [
    "i915 0000:41:00.0: [drm] {program}[4711] context reset due to GPU hang",
    "i915 0000:41:00.0: {program}[4711] context reset due to GPU hang",
    "i915 0000:41:00.0: [drm] GPU HANG: ecode 12:1:85dffffb, in {program} [4711]",
    "xe 0000:41:00.0: [drm] Tile0: GT0: Timedout job: seqno=1, guc_id=4, flags=0x0 in {program} [4711]",
    "amdgpu 0000:41:00.0: amdgpu:  Process {program} pid 4711 thread {program} pid 4712",
]


@pytest.mark.parametrize("line", IN_DRIVER_LINES)
def test_a_program_s_name_in_a_driver_s_line_is_no_news(line: str) -> None:
    names = set()
    for text in IMITATED:
        starts = (match.start() for match in re.finditer(r"\S+", text))
        names |= {text[start : start + 15] for start in starts}
    names |= {"SIGID=1 FATAL x", "SIGID=1 FATAL (", "device lost", "GT0: device los"}
    assert len(names) > 1000
    for name in names:
        assert log_lines.event_of(Line(at=1.0, text=line.format(program=name))) is None, name


PACKETS = [
    "IN=eth0 OUT= MAC=00:00:00:00:00:00 SRC=10.0.0.1 DST=10.0.0.2 LEN=60",
    "IN= OUT=eth0 SRC=10.0.0.1 DST=10.0.0.2 LEN=60",
    "IN=eth0 OUT= ARP HTYPE=1 PTYPE=0x0800 OPCODE=1",
    "IN=eth0 OUT= MACSRC=00:00:00:00:00:00 MACDST=00:00:00:00:00:01 MACPROTO=88cc",
]


@pytest.mark.parametrize("packet", PACKETS)
def test_a_firewall_s_rule_that_logs_packets_is_no_news(packet: str) -> None:
    """The prefix of such a rule may be any text of 127 bytes, and it begins the kernel's line."""
    for text in IMITATED:
        for line in (f"{text[:127]}{packet}", f"{text[:126]} {packet}"):
            assert log_lines.event_of(Line(at=1.0, text=line)) is None, line


@pytest.mark.parametrize("packet", PACKETS)
def test_no_program_hides_a_line_by_the_name_of_a_packet(packet: str) -> None:
    shortest = packet.replace("eth0", "").replace("10.0.0.1", "1")
    for name in (packet[:15], shortest[:15]):
        assert log_lines.event_of(Line(at=1.0, text=XID.replace("python3", name).format(79)))


def forged(dice: random.Random) -> str:
    payload = ""
    for _ in range(dice.randrange(1, 4)):
        payload += dice.choice(GLUE) + dice.choice(PREFIXES) + dice.choice(IMITATED)
        payload += dice.choice(GLUE)
    at = dice.randrange(len(payload)) if dice.random() < 0.3 else 0
    program = dice.choice([payload, dice.choice(IMITATED), payload[at:]])[:15]
    file = payload[at:].replace("/", "_")[:255]
    return dice.choice(IN_KERNEL_LINES).format(program=program, file=file)


@pytest.mark.sampled
@settings(max_examples=samples.share(300), deadline=None)
@given(st.text(max_size=15), st.text(max_size=255), st.sampled_from(IN_KERNEL_LINES), st.data())
def test_no_name_of_a_program_or_file_makes_an_event(
    program: str, file: str, line: str, data: st.DataObject
) -> None:
    real = data.draw(st.sampled_from(IMITATED))
    cut = data.draw(st.integers(0, len(file)))
    file = re.sub(r"[/\x00]", "", file[:cut] + real + file[cut:])
    text = line.format(program=program.replace("\x00", ""), file=file)
    text = text.encode(errors="replace").decode(errors="replace")
    assert events(as_records(text), as_dmesg(text)) == []
