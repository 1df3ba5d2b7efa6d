from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from claimd_devices import fake, faults, uevents
from tests.devices.trees import Make, Tree
from tests.support import samples

FIRST = "0000:11:00.0"


def snapshot(folder: Path) -> dict[str, str]:
    """Returns every file and link except the log, which only grows."""
    contents = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            contents[name] = f"-> {path.readlink()}"
        elif path.is_file() and name not in ("dev/kmsg", ".claimd-faults"):
            contents[name] = f"{path.stat().st_mode:o} {path.read_bytes()!r}"
        elif not path.is_dir():
            contents[name] = "?" if name != "dev/kmsg" else ""
    contents.pop("dev/kmsg", None)
    contents.pop(".claimd-faults", None)
    return contents


@contextmanager
def ear(folder: Path) -> Iterator[socket.socket]:
    faults.enable(folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listener:
        listener.bind(str(folder / uevents.SOCKETS / "ear"))
        yield listener


def heard(listener: socket.socket) -> list[uevents.Uevent]:
    messages = []
    try:
        while True:
            messages.append(uevents.parse(listener.recv(8192)))
    except BlockingIOError:
        return messages


@pytest.mark.parametrize(
    ("fault", "model"),
    samples.parameters(
        itertools.product(
            ["hot", "aer", "link", "eio", "hang", "wedge", "xid"],
            ["nvidia:h100", "amd:mi300x", "intel:b580"],
        )
    ),
)
def test_heal_takes_back_what_was_done(make_tree: Make, model: str, fault: str) -> None:
    tree = make_tree(f"{model}=2")
    name = tree.scan().gpus[0].name
    before = snapshot(tree.folder)
    for _ in range(2):
        faults.inject(tree.folder, fault, name)
    if fault not in ("wedge", "xid"):
        assert snapshot(tree.folder) != before
    faults.inject(tree.folder, "heal", name)
    assert snapshot(tree.folder) == before


def test_a_gpu_that_hangs_already_keeps_its_pipes(make_tree: Make) -> None:
    """Heal wakes those who wait at them."""
    tree = make_tree("nvidia:h100")
    faults.inject(tree.folder, "hang", FIRST)
    pipe = tree.function(FIRST) / "config"
    waiting = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        faults.inject(tree.folder, "hang", FIRST)
        assert os.path.samestat(os.fstat(waiting), pipe.stat())
    finally:
        os.close(waiting)


def test_unplug_and_plug(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100=2")
    before = snapshot(tree.folder)
    faults.inject(tree.folder, "hot", FIRST)
    faults.inject(tree.folder, "unplug", "gpu-0000-11-00-0")
    assert [gpu.address for gpu in tree.scan().gpus] == ["0000:13:00.0"]
    faults.inject(tree.folder, "plug", "gpu-0000-11-00-0")
    assert snapshot(tree.folder) == before


def test_renumber_gives_other_numbers_to_the_same_gpu(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4=2")
    before = tree.scan()
    faults.inject(tree.folder, "renumber", FIRST)
    after = tree.scan()
    assert [gpu.address for gpu in after.gpus] == [gpu.address for gpu in before.gpus]
    assert after.gpus[1] == before.gpus[1]
    numbers = [(node.path, node.minor) for node in after.gpus[0].nodes if "dri" in node.path]
    assert numbers == [("/dev/dri/card2", 2), ("/dev/dri/renderD130", 130)]
    assert (tree.folder / "sys/class/drm/card2/dev").read_text() == "226:2\n"
    assert not (tree.folder / "dev/dri/card0").exists()
    faults.inject(tree.folder, "unplug", FIRST)
    links = [path for path in (tree.folder / "sys/class/drm").iterdir() if not path.exists()]
    assert links == [], "they lead nowhere"


def test_the_link_to_a_card_is_renumbered_with_it(make_tree: Make) -> None:
    tree = make_tree("intel:arc")
    (address,) = (gpu.address for gpu in tree.scan().gpus)
    faults.inject(tree.folder, "renumber", address)
    (link,) = tree.function(address).glob("drm/controlD*")
    assert (link.name, os.readlink(link)) == ("controlD65", "card1")


def test_what_was_renumbered_can_come_and_go(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4=2")
    for fault in (
        "renumber",
        "unplug",
        "plug",
        "renumber",
        "renumber",
        "unplug",
        "plug",
        "renumber",
    ):
        faults.inject(tree.folder, fault, FIRST)
        there = {path.name for path in (tree.folder / "sys/class/drm").iterdir()} - {"version"}
        assert {path.name for path in (tree.folder / "dev/dri").iterdir()} == there


def test_whoever_listens_is_told_as_the_kernel_would(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4")
    path = f"/devices/pci0000:10/0000:10:01.0/{FIRST}"
    with ear(tree.folder) as listener:
        faults.inject(tree.folder, "wedge", FIRST, "rebind")
        (event,) = heard(listener)
        assert event == uevents.Uevent(
            action="change", subsystem="drm", path=f"{path}/drm/card0", wedged="rebind"
        )
        assert event.address == FIRST
        faults.inject(tree.folder, "unplug", FIRST)
        assert [(event.action, event.path) for event in heard(listener)] == [
            ("unbind", path),
            ("remove", path),
        ]
        faults.inject(tree.folder, "plug", FIRST)
        assert [event.action for event in heard(listener)] == ["add", "bind", "add", "add"]
    faults.inject(
        tree.folder, "hot", FIRST
    )  # nobody listens any more: the socket of the dead is removed
    assert list((tree.folder / uevents.SOCKETS).iterdir()) == []


QUIET = {"unplug": ["unbind", "remove"], "plug": [], "heal": ["unbind", "bind"]}


@pytest.mark.parametrize("fault", sorted(faults.FAULTS.keys() - {"plug", "renumber"}))
def test_every_fault_makes_readers_look(make_tree: Make, fault: str) -> None:
    drivers = faults.FAULTS[fault].drivers
    tree = make_tree("nvidia:h100" if not drivers or "nvidia" in drivers else "amd:mi210")
    address = tree.scan().gpus[0].address
    with ear(tree.folder) as listener:
        faults.inject(tree.folder, fault, address)
        events = heard(listener)
    assert [event.action for event in events] == QUIET.get(fault, ["change"])
    assert {event.address for event in events} == {address}


def test_new_numbers_are_told_node_by_node(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4")
    with ear(tree.folder) as listener:
        faults.inject(tree.folder, "renumber", FIRST)
        names = [(event.action, Path(event.path).name) for event in heard(listener)]
    assert names == [
        ("remove", "card0"),
        ("add", "card1"),
        ("remove", "renderD128"),
        ("add", "renderD129"),
    ]


def test_heal_is_told_in_the_log_as_a_driver_tells_a_bind(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4")
    faults.inject(tree.folder, "heal", FIRST)
    assert lines(tree) == [f"nvidia {FIRST}: enabling device (0000 -> 0003)"]


@pytest.mark.parametrize(
    ("fault", "device", "message"),
    [
        ("melt", FIRST, "'melt' is no fault: expected one of unplug, plug"),
        ("wedg", FIRST, "'wedg' is no fault, did you mean wedge?: expected one of unplug"),
        ("hot", "0000:99:00.0", "no 0000:99:00.0 is plugged into "),
        ("hot", "gpu-7", "no gpu-7 is plugged into "),
        ("plug", FIRST, "0000:11:00.0 is plugged in already"),
        ("plug", "0000:99:00.0", "no 0000:99:00.0 was unplugged from "),
        (
            "hot",
            "gpu-0000-11-00-0-mig-7-0",
            "gpu-0000-11-00-0-mig-7-0 is a part of gpu-0000-11-00-0: a fault is injected into",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(
    make_tree: Make, fault: str, device: str, message: str
) -> None:
    tree = make_tree("nvidia:l4", "bmc:aspeed")
    before = snapshot(tree.folder)
    for refuse in (faults.check, faults.inject):
        with pytest.raises(ValueError, match=re.escape(message)):
            refuse(tree.folder, fault, device)
    assert snapshot(tree.folder) == before


@pytest.mark.parametrize(
    ("device", "listed"),
    [
        ("0000:11:00.1", "0000:11:00.0, 0000:13:00.0"),
        ("gpu-0000-13-00-1", "gpu-0000-11-00-0, gpu-0000-13-00-0"),
        ("first", "gpu-0000-11-00-0, gpu-0000-13-00-0"),
    ],
)
def test_only_gpus_are_suggested_and_spelt_as_asked(
    make_tree: Make, device: str, listed: str
) -> None:
    tree = make_tree("nvidia:l4=2", "bmc:aspeed")
    with pytest.raises(ValueError, match="is plugged into") as refused:
        faults.check(tree.folder, "hot", device)
    assert str(refused.value) == f"no {device} is plugged into {tree.folder}; its GPUs are {listed}"


def test_what_is_plugged_is_suggested_only_where_it_helps(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4=2")
    faults.inject(tree.folder, "unplug", FIRST)
    with pytest.raises(ValueError, match=r"is plugged into .*; its GPUs are 0000:13:00\.0$"):
        faults.check(tree.folder, "hot", FIRST)
    with pytest.raises(ValueError, match=r"no gpu-7 was unplugged .*; unplugged are gpu-0000-11-"):
        faults.check(tree.folder, "plug", "gpu-7")
    faults.check(tree.folder, "plug", FIRST)


def test_a_long_list_of_gpus_is_cut(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4=20")
    with pytest.raises(ValueError, match=r"its GPUs are .* and 4 more$") as refused:
        faults.check(tree.folder, "hot", "0000:ff:1f.7")
    listed = str(refused.value).partition("its GPUs are ")[2].removesuffix(" and 4 more")
    assert len(listed.split(", ")) == 16
    with pytest.raises(ValueError, match="its GPUs are 0000:2f:00.0, "):
        faults.check(tree.folder, "hot", "0000:2f:00.1")


@pytest.mark.parametrize(
    ("fault", "value", "message"),
    [
        ("aer", "some", "aer: 'some' is not fatal or nonfatal"),
        ("xid", "x", "xid: 'x' is not its number"),
        ("link", "wide", "link: 'wide' is not a number of lanes"),
        ("wedge", "re bind", "wedge: 're bind' is not what the kernel advises, such as rebind"),
        ("hot", "9", "hot takes no value, not '9'"),
    ],
)
def test_a_wrong_value_is_refused(make_tree: Make, fault: str, value: str, message: str) -> None:
    tree = make_tree("nvidia:l4")
    with pytest.raises(ValueError, match=re.escape(message)):
        faults.inject(tree.folder, fault, FIRST, value)


def test_every_fault_says_what_it_does() -> None:
    assert list(faults.FAULTS) == [
        *("unplug", "plug", "wedge", "hot", "aer", "link"),
        *("xid", "recovery", "sxid", "init-failed", "reset-failed"),
        *("renumber", "eio", "hang", "heal"),
    ]
    for name, fault in faults.FAULTS.items():
        assert fault.name == name
        assert len(fault.sentence) > 20
        assert fault.accepts("")
        assert fault.accepts("?") is False


def test_a_machine_s_own_files_are_never_touched(tmp_path: Path) -> None:
    os.makedirs(tmp_path / "sys/bus/pci/devices")
    with pytest.raises(ValueError, match="was not written by claimd fake"):
        faults.inject(tmp_path, "hot", FIRST)


@pytest.mark.skipif(os.geteuid() != 0, reason="root without any capability is still root")
@pytest.mark.parametrize(
    "names", [("unplug", "plug"), ("hot", "aer", "link", "heal"), ("renumber",)]
)
def test_root_without_any_capability_may_inject_faults(
    make_tree: Make, names: tuple[str, ...]
) -> None:
    """In a pod, not even the owner can write into a read-only file."""
    tree = make_tree("nvidia:h100=2")
    program = (
        "import sys; from pathlib import Path; from claimd_devices import faults\n"
        "for fault in sys.argv[2:]: faults.inject(Path(sys.argv[1]), fault, '0000:11:00.0')"
    )
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", program]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2] / "devices")}
    done = subprocess.run(
        [*command, str(tree.folder), *names],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(tree.scan().gpus) == 2


@pytest.mark.parametrize(("value", "lanes"), [("", "4"), ("2", "2")])
def test_a_link_has_as_many_lanes_as_were_asked_for(
    make_tree: Make, value: str, lanes: str
) -> None:
    tree = make_tree("nvidia:l4")
    faults.inject(tree.folder, "link", FIRST, value)
    assert (tree.function(FIRST) / "current_link_width").read_text() == f"{lanes}\n"


# ---------------------------------------------------------------- a tree of another user


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("fault", ["heal", "hot", "unplug"])
@pytest.mark.parametrize(
    "name",
    ["../../../../../../outside/precious", "/OUTSIDE/precious", "up/../../../outside/precious"],
)
def test_what_was_saved_names_no_file_outside_of_the_tree(
    make_tree: Make, tmp_path: Path, name: str, fault: str
) -> None:
    tree = make_tree("nvidia:l4=2")
    outside = tree.folder.parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "precious").write_text("before")
    gpu = (tree.folder / "sys/bus/pci/devices" / FIRST).resolve()
    (gpu / "up").symlink_to(tree.folder.resolve() / "sys")
    name = name.replace("/OUTSIDE", str(outside))
    saved = {FIRST: {name: ["after", 0o104755]}}
    (tree.folder / ".claimd-faults").write_text(json.dumps(saved))

    with contextlib.suppress(ValueError, FileNotFoundError):
        faults.inject(tree.folder, fault, FIRST)
    assert everything(outside) == {str(outside / "precious"): b"before"}


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"a": 1}', '{"0000:11:00.0": {"vendor": ["\u2028", 1]}}', "[" * 100_000]
)
def test_what_was_saved_and_makes_no_sense_is_told(make_tree: Make, text: str) -> None:
    tree = make_tree("nvidia:l4")
    (tree.folder / ".claimd-faults").write_text(text)
    with pytest.raises(ValueError, match=r"\.claimd-faults "):
        faults.inject(tree.folder, "heal", FIRST)


def test_a_folder_in_place_of_what_was_saved(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    (tree.folder / faults._SAVED).mkdir()
    with pytest.raises(IsADirectoryError):
        faults.check(tree.folder, "hot", FIRST)


def test_no_file_gets_to_be_set_uid(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4")
    saved = {FIRST: {"vendor": ["0x10de\n", 0o104755]}}
    (tree.folder / ".claimd-faults").write_text(json.dumps(saved))
    faults.inject(tree.folder, "heal", FIRST)
    vendor = tree.folder / "sys/bus/pci/devices" / FIRST / "vendor"
    assert vendor.stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("dev/kmsg", "precious"),
        (".claimd-faults", "precious"),
        ("sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/hwmon", ""),
        ("sys/class/other", ""),
    ],
)
@pytest.mark.parametrize("fault", ["hot", "xid", "heal", "unplug"])
def test_nothing_is_written_through_a_link_that_leads_out(
    make_tree: Make, tmp_path: Path, fault: str, link: str, target: str
) -> None:
    tree = make_tree("nvidia:l4")
    outside = tree.folder.parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "precious").write_text("before")
    (tree.folder / link).unlink(missing_ok=True)
    (tree.folder / link).symlink_to(outside / target)
    with pytest.raises(ValueError, match="leads out of the tree, to "):
        faults.inject(tree.folder, fault, FIRST)
    assert everything(outside) == {str(outside / "precious"): b"before"}


def test_the_name_of_a_driver_is_no_path(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'\.\./\.\./x'.*the name of a kernel module"):
        fake.write(tmp_path / "t", fake.parse(["nvidia:l4,driver=../../x"]))


def lines(tree: Tree) -> list[str]:
    """Returns the texts of the tree's kernel log."""
    log = (tree.folder / "dev/kmsg").read_text().splitlines()
    return [line.partition(";")[2] for line in log]


@pytest.mark.parametrize(
    ("fault", "value", "text"),
    [
        ("xid", "46,instance=7", "NVRM: Xid (PCI:0000:11:00 GPU-I:07 GPU-CI:00): 46, pid=4711, "),
        ("xid=95", "", "NVRM: Xid (PCI:0000:11:00): 95, pid=4711, "),
        ("xid", "instance=3", "NVRM: Xid (PCI:0000:11:00 GPU-I:03 GPU-CI:00): 79, pid=4711, "),
        (
            "recovery",
            "",
            "NVRM: Xid (PCI:0000:11:00): 154, GPU recovery action changed "
            "from 0x0 (None) to 0x1 (GPU Reset Required)",
        ),
        (
            "recovery=none",
            "",
            "NVRM: Xid (PCI:0000:11:00): 154, GPU recovery action changed "
            "from 0x1 (GPU Reset Required) to 0x0 (None)",
        ),
        ("sxid=12028", "", "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Fatal, Link 30"),
        ("init-failed", "", "NVRM: GPU 0000:11:00.0: rm_init_adapter failed, device minor"),
    ],
)
def test_lines_of_nvidias_drivers(make_tree: Make, fault: str, value: str, text: str) -> None:
    tree = make_tree("nvidia:l4")
    faults.inject(tree.folder, fault, FIRST, value)
    assert lines(tree)[-1].startswith(text)


def test_a_gpu_that_cannot_be_initialized_has_no_uuid_until_it_is_healed(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4")
    (before,) = tree.scan().gpus
    faults.inject(tree.folder, "init-failed", FIRST)
    assert tree.scan().gpus[0].uuid is None
    faults.inject(tree.folder, "heal", FIRST)
    assert tree.scan().gpus == (before,)


@pytest.mark.parametrize(
    ("model", "fault", "value", "message"),
    [
        ("nvidia:l4", "reset-failed", "", "the driver of 0000:11:00.0 is nvidia, not amdgpu or"),
        ("amd:mi210", "recovery", "", "recovery: the driver of 0000:13:00.0 is amdgpu, not nvidia"),
        ("nvidia:l4", "recovery", "sleep", "recovery: 'sleep' is not none, reset, reboot, "),
        ("nvidia:l4", "xid=79", "31", "xid has two values, '79' and '31'"),
        ("nvidia:l4", "xid", "79,part=1", "xid: '79,part=1' is not its number"),
    ],
)
def test_a_fault_that_the_driver_cannot_have_is_refused(
    make_tree: Make, model: str, fault: str, value: str, message: str
) -> None:
    tree = make_tree(model)
    with pytest.raises(ValueError, match=re.escape(message)):
        faults.check(tree.folder, fault, tree.scan().gpus[0].address, value)
