"""A captured machine gives the same scan as the machine, even with broken files."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from claimd_devices import capture, fake, scan, sysfs
from claimd_devices.failures import LookFailedError
from claimd_devices.gpu import Inventory
from tests.devices.test_damage import DAMAGES
from tests.devices.trees import Make, Tree
from tests.support import samples
from tests.support.limits import without_descriptors


@pytest.fixture(autouse=True)
def forgetting() -> Iterator[None]:
    yield
    capture.stop_replay()


def scan_capture(file: Path, folder: Path) -> Inventory:
    folder.mkdir()
    replay = capture.unpack(file, folder)
    return replay.with_original_paths(scan.scan(replay.roots, with_link_now=True))


def pack(tree: Tree, file: Path, *, redact: bool = False) -> Inventory:
    capture.pack(file, tree.roots, tree.scan, redact=redact)
    return tree.scan()


@pytest.mark.parametrize("machine", samples.parameters([[each] for each in fake.MACHINES]))
def test_the_same_is_found(make_tree: Make, tmp_path: Path, machine: str) -> None:
    tree = make_tree(machine)
    before = pack(tree, tmp_path / "c.tar")
    after = scan_capture(tmp_path / "c.tar", tmp_path / "again")
    assert after == before
    assert [gpu.link_speed_now for gpu in after.gpus] == [gpu.link_speed_now for gpu in before.gpus]


def test_what_was_only_looked_for_is_there_without_its_content(
    make_tree: Make, tmp_path: Path
) -> None:
    tree = make_tree("nvidia:l4")
    tree.put("sys/other/folder/file", "secret")
    (tree.folder / "sys/other/link").symlink_to("folder")

    def look_at(folder: Path) -> list[bool]:
        place = f"{folder}/sys/other"
        return [
            sysfs.is_folder(f"{place}/folder", follow=False),
            sysfs.is_file(f"{place}/folder/file", []),
            sysfs.is_folder(f"{place}/link", follow=False),
            sysfs.exists(f"{place}/missing"),
        ]

    def scan_it() -> Inventory:
        look_at(tree.folder)
        return tree.scan()

    capture.pack(tmp_path / "c.tar", tree.roots, scan_it)
    (tmp_path / "again").mkdir()
    capture.unpack(tmp_path / "c.tar", tmp_path / "again")
    assert look_at(tmp_path / "again") == look_at(tree.folder) == [True, True, False, False]
    assert (tmp_path / "again/sys/other/folder/file").read_bytes() == b""
    assert os.readlink(tmp_path / "again/sys/other/link") == "folder"


def test_an_empty_folder_that_was_only_looked_for_is_there(make_tree: Make, tmp_path: Path) -> None:
    tree = make_tree("nvidia:l4")
    (tree.folder / "sys/other/empty").mkdir(parents=True)

    def look() -> Inventory:
        assert sysfs.is_folder(f"{tree.folder}/sys/other/empty", follow=False)
        return tree.scan()

    capture.pack(tmp_path / "c.tar", tree.roots, look)
    (tmp_path / "again").mkdir()
    capture.unpack(tmp_path / "c.tar", tmp_path / "again")
    assert (tmp_path / "again/sys/other/empty").is_dir()


def test_a_capture_of_a_capture_is_the_same_but_for_its_place(
    make_tree: Make, tmp_path: Path
) -> None:
    pack(make_tree("machine:mi300x-cpx"), tmp_path / "one.tar")
    folder = tmp_path / "again"
    folder.mkdir()
    replay = capture.unpack(tmp_path / "one.tar", folder)
    capture.pack(
        tmp_path / "two.tar", replay.roots, lambda: scan.scan(replay.roots, with_link_now=True)
    )
    with (
        tarfile.open(tmp_path / "one.tar") as capture_file,
        tarfile.open(tmp_path / "two.tar") as two,
    ):
        assert capture_file.getnames() == two.getnames()


DAMAGED = [
    "sys/bus/pci/devices/0000:13:00.0",
    "sys/bus/pci/devices/0000:13:00.0/vendor",
    "sys/bus/pci/devices/0000:13:00.0/unique_id",
    "sys/bus/pci/devices/0000:13:00.0/current_compute_partition",
    "sys/bus/pci/devices/0000:13:00.0/driver",
    "sys/class/kfd/kfd",
    "sys/class/kfd/kfd/topology/nodes/1/properties",
    "proc/devices",
]


@pytest.mark.parametrize(
    ("path", "damage"), samples.parameters(itertools.product(DAMAGED, DAMAGES))
)
def test_what_is_wrong_is_wrong_again(
    make_tree: Make, tmp_path: Path, path: str, damage: Callable[[Path], None]
) -> None:
    tree = make_tree("amd:mi300x=2", "nvidia:l4")
    if damage.__name__ == "_io_error" and (tree.folder / path).is_symlink():
        pytest.skip("a link of the kernel's never leads out of its tree")
    damage(tree.folder / path)
    before = pack(tree, tmp_path / "c.tar")
    assert scan_capture(tmp_path / "c.tar", tmp_path / "again") == before


def test_a_file_that_nobody_can_read_is_no_file_in_the_capture(
    make_tree: Make, tmp_path: Path
) -> None:
    tree = make_tree("amd:mi210")
    path = tree.function(tree.only().address) / "vbios_version"
    path.unlink()
    os.mknod(path, stat.S_IFSOCK | 0o600)
    (note,) = pack(tree, tmp_path / "c.tar").gpus[0].notes
    assert "vbios_version: No such device or address" in note
    (note,) = scan_capture(tmp_path / "c.tar", tmp_path / "again").gpus[0].notes
    assert "vbios_version: Input/output error" in note


def test_serials_are_replaced_on_request(make_tree: Make, tmp_path: Path) -> None:
    tree = make_tree("nvidia:h100", "amd:mi210")
    before = pack(tree, tmp_path / "c.tar", redact=True)
    content = (tmp_path / "c.tar").read_bytes()
    serials = [gpu.uuid or "" for gpu in before.gpus]
    kfd = str(int(serials[1], 16))
    for serial in (*serials, kfd):
        assert serial.encode() not in content
    assert b"root@host" not in content
    after = scan_capture(tmp_path / "c.tar", tmp_path / "again")
    assert [gpu.uuid == old for gpu, old in zip(after.gpus, serials, strict=True)] == [False, False]
    assert [gpu.name for gpu in after.gpus] == [gpu.name for gpu in before.gpus]
    assert [len(gpu.uuid or "") for gpu in after.gpus] == [len(serial) for serial in serials]
    assert after.gpus[1].compute_units == 104


def hostile(file: Path, *entries: tuple[str, bytes, str], about: object = None) -> None:
    """Writes a tar file with an entry for each name, type and target."""
    about = (
        {"format": 1, "roots": {"sys": "/sys", "proc": "/proc", "host": ""}, "errors": {}}
        if about is None
        else about
    )
    with tarfile.open(file, "w") as tar:
        content = json.dumps(about).encode()
        first = tarfile.TarInfo(capture.ABOUT)
        first.size = len(content)
        tar.addfile(first, io.BytesIO(content))
        for name, kind, target in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, target
            tar.addfile(entry)


@pytest.mark.parametrize(
    "entry",
    [
        ("../outside", tarfile.REGTYPE, ""),
        ("/etc/passwd", tarfile.REGTYPE, ""),
        ("sys/../../outside", tarfile.REGTYPE, ""),
        ("etc/passwd", tarfile.REGTYPE, ""),
        ("sys/a", tarfile.CHRTYPE, ""),
        ("sys/a", tarfile.FIFOTYPE, ""),
        ("sys/a", tarfile.LNKTYPE, "../../etc/passwd"),
        ("sys//a", tarfile.REGTYPE, ""),
        ("sys", tarfile.SYMTYPE, "proc"),
        ("host", tarfile.REGTYPE, ""),
        ("host/sys", tarfile.SYMTYPE, "../proc"),
        ("host/proc/a", tarfile.REGTYPE, ""),
    ],
)
def test_a_file_that_leads_out_is_refused(tmp_path: Path, entry: tuple[str, bytes, str]) -> None:
    hostile(tmp_path / "c.tar", entry)
    with pytest.raises(ValueError, match="must (not be in it|be a folder)"):
        scan_capture(tmp_path / "c.tar", tmp_path / "again")
    assert not (tmp_path / "outside").exists()


def test_a_link_that_leads_out_leads_nowhere(tmp_path: Path) -> None:
    hostile(
        tmp_path / "c.tar",
        ("sys/a", tarfile.SYMTYPE, "/etc"),
        ("sys/b", tarfile.SYMTYPE, "../../../etc"),
    )
    scan_capture(tmp_path / "c.tar", tmp_path / "again")
    assert not list((tmp_path / "again/sys").iterdir())


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    hostile(
        tmp_path / "c.tar", ("sys/a", tarfile.SYMTYPE, "../proc"), ("sys/a/b", tarfile.REGTYPE, "")
    )
    with pytest.raises(ValueError, match="is no capture"):
        capture.unpack(tmp_path / "c.tar", tmp_path / "again")
    assert not (tmp_path / "again/proc").exists()


def prison(file: Path, folder: Path, **links: str) -> dict[str, str]:
    """Returns where links in sys/ lead in a capture with the folders sys/a/b/c, as on disk."""
    entries = [("sys/a/b/c", tarfile.DIRTYPE, "")]
    entries += [
        (f"sys/{name.replace('__', '/')}", tarfile.SYMTYPE, to) for name, to in links.items()
    ]
    hostile(file, *entries)
    folder.mkdir()
    capture.unpack(file, folder)
    where = {}
    for link in (folder / "sys").rglob("*"):
        if link.is_symlink():
            where[str(link.relative_to(folder))] = os.path.relpath(os.path.realpath(link), folder)
    return where


def test_a_chain_of_links_that_leads_out_only_on_disk_leads_nowhere(tmp_path: Path) -> None:
    # The text of the path is sys/a/b/outside. On disk, the first link leads to sys, and two folders
    # above that is outside.
    where = prison(
        tmp_path / "c.tar", tmp_path / "again", a__b__c__up="../../..", m="a/b/c/up/../../outside"
    )
    assert where == {"sys/a/b/c/up": "sys"}


def test_a_link_that_leads_out_through_the_host_s_link_to_sys_leads_nowhere(
    tmp_path: Path,
) -> None:
    # If host/sys were a folder, this would lead to host/outside.
    out = "../host/sys/../host/sys/../../outside"
    where = prison(tmp_path / "c.tar", tmp_path / "again", out=out, m="../host/sys/a/b")
    assert where == {"sys/m": "sys/a/b"}


def test_links_that_lead_through_others_and_stay_inside_are_kept(tmp_path: Path) -> None:
    links = {"a__up": "..", "m": "a/up/a/b", "n": "m/c/../../up/m", "none": "gone/../../proc/x"}
    where = prison(tmp_path / "c.tar", tmp_path / "again", **links)
    assert where["sys/m"] == "sys/a/b"
    assert where["sys/n"] == "sys/a/b"
    assert "sys/none" in where


@pytest.mark.parametrize("target", ["", ".", "..", "../..", "../claimd-capture.json", "x" * 4096])
def test_links_to_no_place_in_the_trees(tmp_path: Path, target: str) -> None:
    where = prison(tmp_path / "c.tar", tmp_path / "again", link=target)
    assert set(where) == ({"sys/link"} if target == "." else set())


def test_links_that_lead_in_circles_are_kept_and_cost_no_time(tmp_path: Path) -> None:
    links = {f"l{number}": f"l{number + 1}" for number in range(2000)} | {"l2000": "l0"}
    hostile(
        tmp_path / "c.tar",
        *((f"sys/{name}", tarfile.SYMTYPE, target) for name, target in links.items()),
    )
    (tmp_path / "again").mkdir()
    capture.unpack(tmp_path / "c.tar", tmp_path / "again")
    assert len(os.listdir(tmp_path / "again/sys")) == 2001


def test_a_maze_of_links_is_refused(tmp_path: Path) -> None:
    links = [
        (f"sys/l{number}", tarfile.SYMTYPE, "d/../" * 300 + f"l{number + 1}")
        for number in range(3000)
    ]
    hostile(tmp_path / "c.tar", ("sys/d", tarfile.DIRTYPE, ""), *links)
    with pytest.raises(ValueError, match="its links are a maze"):
        scan_capture(tmp_path / "c.tar", tmp_path / "again")


def test_a_file_of_holes_is_refused(tmp_path: Path) -> None:
    """A sparse file of 4 MiB needs only 512 bytes in a tar file: 348 KB became 1.2 GB."""
    hostile(tmp_path / "c.tar")
    with tarfile.open(tmp_path / "c.tar", "a", format=tarfile.GNU_FORMAT) as archive:
        entry = tarfile.TarInfo("sys/sparse")
        entry.type = tarfile.GNUTYPE_SPARSE
        archive.addfile(entry)
    header = bytearray((tmp_path / "c.tar").read_bytes())
    at = header.index(b"sys/sparse")
    header[at + 483 : at + 495] = b"%011o\0" % (1 << 22)
    header[at + 148 : at + 156] = b" " * 8
    header[at + 148 : at + 156] = b"%06o\0 " % sum(header[at : at + 512])
    (tmp_path / "c.tar").write_bytes(header)
    with pytest.raises(ValueError, match="'sys/sparse' must not be in it"):
        scan_capture(tmp_path / "c.tar", tmp_path / "again")


def test_names_that_would_make_thousands_of_folders_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deepest = "/".join(["sys", *"a" * 39])
    hostile(tmp_path / "c.tar", (deepest, tarfile.REGTYPE, ""))
    scan_capture(tmp_path / "c.tar", tmp_path / "again")
    hostile(tmp_path / "c.tar", (f"{deepest}/a", tarfile.REGTYPE, ""))
    with pytest.raises(ValueError, match="must not be in it"):
        scan_capture(tmp_path / "c.tar", tmp_path / "deeper")

    monkeypatch.setattr(capture, "_MOST_FOLDERS", 3)
    hostile(tmp_path / "c.tar", ("sys/a/b/c", tarfile.REGTYPE, ""))
    scan_capture(tmp_path / "c.tar", tmp_path / "three")
    hostile(tmp_path / "c.tar", ("sys/a/b/c/d", tarfile.REGTYPE, ""))
    with pytest.raises(ValueError, match="it has more than 3 folders"):
        scan_capture(tmp_path / "c.tar", tmp_path / "four")


def test_a_capture_that_is_larger_than_any_machine_s_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile(tmp_path / "c.tar")
    size = (tmp_path / "c.tar").stat().st_size
    monkeypatch.setattr(capture, "_LARGEST_CAPTURE", size)
    scan_capture(tmp_path / "c.tar", tmp_path / "again")
    monkeypatch.setattr(capture, "_LARGEST_CAPTURE", size - 1)
    with pytest.raises(ValueError, match="is no capture: it has more than"):
        scan_capture(tmp_path / "c.tar", tmp_path / "larger")


def test_nobody_but_its_owner_reads_what_is_put_down(make_tree: Make, tmp_path: Path) -> None:
    pack(make_tree("nvidia:l4"), tmp_path / "c.tar")
    scan_capture(tmp_path / "c.tar", tmp_path / "again")
    for path in (tmp_path / "again").rglob("*"):
        if not path.is_symlink():
            assert path.stat().st_mode & 0o077 == 0, path


def test_a_capture_is_not_written_through_what_others_have_laid_there(
    make_tree: Make, tmp_path: Path
) -> None:
    (tmp_path / "precious").write_text("before")
    (tmp_path / ".c.tar.new").symlink_to(tmp_path / "precious")
    pack(make_tree("nvidia:l4"), tmp_path / "c.tar")
    assert (tmp_path / "precious").read_text() == "before"
    assert not (tmp_path / ".c.tar.new").is_symlink()

    # A program that has the temporary file open must not see the content either.
    (tmp_path / ".c.tar.new").write_text("")
    (tmp_path / ".c.tar.new").chmod(0o666)
    with (tmp_path / ".c.tar.new").open("rb") as theirs:
        pack(make_tree("nvidia:l4"), tmp_path / "c.tar")
        assert theirs.read() == b""
    assert stat.S_IMODE((tmp_path / "c.tar").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "about",
    [
        {"roots": {"sys": "/sys\x1b[2J", "proc": "/proc", "host": ""}, "errors": {}},
        {"roots": {"sys": "/sys", "proc": "/proc", "host": ""}, "errors": {"sys/a": 1 << 70}},
        {"roots": {"sys": "/sys", "proc": "/proc", "host": ""}, "errors": {"sys/a": -1}},
        [],
        {},
        {"roots": {}},
        {"roots": {"sys": "/sys", "proc": "/proc", "host": ""}, "errors": {"x": 1}},
    ],
)
def test_words_about_it_that_make_no_sense(tmp_path: Path, about: object) -> None:
    hostile(tmp_path / "c.tar", about=about)
    with pytest.raises(ValueError, match=capture.ABOUT):
        scan_capture(tmp_path / "c.tar", tmp_path / "again")


@pytest.mark.parametrize("content", [b"", b"no tar", b"\0" * 10240])
def test_what_is_no_tar_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c.tar").write_bytes(content)
    with pytest.raises(ValueError, match=r"c\.tar is no capture"):
        scan_capture(tmp_path / "c.tar", tmp_path / "again")


@pytest.mark.parametrize(("size", "is_refused"), [(1 << 22, False), ((1 << 22) + 1, True)])
def test_a_file_larger_than_any_of_the_kernel_s_is_refused(
    tmp_path: Path, size: int, is_refused: bool
) -> None:
    hostile(tmp_path / "c.tar")
    with tarfile.open(tmp_path / "c.tar", "a") as tar:
        entry = tarfile.TarInfo("sys/large")
        entry.size = size
        tar.addfile(entry, io.BytesIO(b"x" * size))
    if is_refused:
        with pytest.raises(ValueError, match="'sys/large' must not be in it"):
            scan_capture(tmp_path / "c.tar", tmp_path / "again")
    else:
        scan_capture(tmp_path / "c.tar", tmp_path / "again")
        assert (tmp_path / "again/sys/large").stat().st_size == size


def test_a_file_of_more_entries_than_any_machine_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [(f"sys/{number}", tarfile.REGTYPE, "") for number in range(4)]
    hostile(tmp_path / "c.tar", *entries)
    monkeypatch.setattr(capture, "_MOST_ENTRIES", 5)  # the folder of the top is one
    scan_capture(tmp_path / "c.tar", tmp_path / "again")
    monkeypatch.setattr(capture, "_MOST_ENTRIES", 4)
    with pytest.raises(ValueError, match="'sys/3' must not be in it"):
        scan_capture(tmp_path / "c.tar", tmp_path / "once more")


def test_of_a_large_file_the_first_part_is_captured(
    make_tree: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = make_tree("nvidia:l4")
    version = "proc/driver/nvidia/version"
    content = (tree.folder / version).read_bytes()
    monkeypatch.setattr(capture, "_LARGEST_FILE", 40)
    capture.pack(tmp_path / "c.tar", tree.roots, tree.scan)
    with tarfile.open(tmp_path / "c.tar") as tar:
        captured_content = tar.extractfile(version)
        assert captured_content is not None
        assert captured_content.read() == content[:40]


def test_a_capture_that_fails_leaves_what_was_there(make_tree: Make, tmp_path: Path) -> None:
    file = tmp_path / "c.tar"
    file.write_text("before")
    tree = make_tree("nvidia:l4")

    def fail() -> Inventory:
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        capture.pack(file, tree.roots, fail)
    assert file.read_text() == "before"


def test_a_capture_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        capture.unpack(tmp_path / "c.tar", tmp_path)


def test_an_error_of_ours_is_no_part_of_a_capture(make_tree: Make, tmp_path: Path) -> None:
    tree = make_tree("nvidia:h100")
    file = tmp_path / "c.tar"
    limits = contextlib.ExitStack()

    def look() -> Inventory:
        inventory = tree.scan()
        limits.enter_context(without_descriptors())
        return inventory

    with limits, pytest.raises(LookFailedError, match="Too many open files"):
        capture.pack(file, tree.roots, look)
    assert not file.exists()


def test_a_file_of_sysctl_is_captured(tmp_path: Path) -> None:
    """The kernel refuses reads of 4 MiB and more of these files, for lack of memory."""
    descriptor = os.open("/proc/sys/kernel/osrelease", os.O_RDONLY)
    try:
        assert sysfs.read_to_end(descriptor, 1 << 22) == f"{os.uname().release}\n".encode()
    finally:
        os.close(descriptor)
