"""Captures what a scan reads of a machine in a tar file, and unpacks such a file to scan it.

This module does not know what the files mean, except serial numbers, which it replaces on request.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import stat
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from . import failures, sysfs, tar
from .gpu import Gpu, Inventory, Roots

ABOUT = "claimd-capture.json"
HOST = "host"
_TOPS = ("sys", "proc", HOST)

# /sys and /proc are in the host's root too, but they are trees of their own.
_OTHER_TREES = (f"{HOST}/sys/", f"{HOST}/proc/")

# The most bytes of a file, and of all files together or of a capture. A node with 64 partitions
# needs 1 MiB.
_LARGEST_FILE, _LARGEST_CAPTURE = 1 << 22, 1 << 26

# The most names in a capture, which has thousands in the folders of a host's libraries. The limit
# for folders is lower, because a folder needs a block of the disk although it has no content in the
# file.
_MOST_ENTRIES, _MOST_FOLDERS = 1 << 17, 1 << 14
_DEEPEST, _LONGEST_NAME, _LONGEST_PATH = 40, 1024, 4096

# The most links on the way of one path, as in the kernel, and the most names on the ways of all
# links.
_MOST_LINKS, _MOST_STEPS = 40, 1_000_000

# All error numbers of the kernel are smaller.
_ERRORS = 4096

# The user who built a module, and the machine.
_BUILDER = re.compile(rb"\([^()\s]*@[^()\s]*\)")


@dataclass(slots=True)
class _Trees:
    """The folders, links and files of the trees that go into the file, by their names in it."""

    roots: Mapping[str, str]
    folders: set[str] = field(default_factory=set)
    links: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    # The errors of accesses, by name.
    errors: dict[str, int] = field(default_factory=dict)

    def take(self, path: str, *, follow: bool) -> None:
        """Takes a path that the scan accessed, with all links and folders on its way.

        A missing path stays missing. Any other error is stored, so that the replay returns it too.
        Raises LookFailedError if we could not look, which is no error of the file.
        """
        name = self._name(path)
        if name is None:
            return
        try:
            self._take(name, follow=follow)
        except OSError as error:
            # An error of a read names no file. It is always about the file, as in `sysfs.read`.
            if error.filename is not None:
                failures.check(path, error)
            if error.errno != errno.ENOENT:
                self.errors[name] = error.errno or errno.EIO

    def _take(self, name: str, *, follow: bool) -> None:
        above, _, last = name.rpartition("/")
        if not follow and last:
            folder = self._walk(above.split("/"))
            if folder is not None:
                self._take_link(f"{folder}/{last}")
            return

        place = self._walk(name.split("/"))
        if place is None:
            return
        mode = os.lstat(self._path(place)).st_mode
        if stat.S_ISDIR(mode):
            self._take_folder(place)
        elif stat.S_ISREG(mode):
            self.files[place] = _content(self._path(place))
        else:
            self.errors[name] = errno.EIO

    def _take_link(self, name: str) -> None:
        """Records that a name exists: a link with its target, a folder, or a file as an empty file."""
        mode = os.lstat(self._path(name)).st_mode
        if stat.S_ISLNK(mode):
            self.links[name] = _inside(name, os.readlink(self._path(name)))
        elif stat.S_ISDIR(mode):
            self.folders.add(name)
        else:
            self.files.setdefault(name, b"")

    def _take_folder(self, folder: str) -> None:
        """Takes a folder with all names in it, so that a replay lists the same names.

        Files that were not read are empty.
        """
        self.folders.add(folder)
        for entry in os.scandir(self._path(folder)):
            name = f"{folder}/{entry.name}"
            if entry.is_symlink():
                self.links[name] = os.readlink(entry.path)
            elif entry.is_dir():
                self.folders.add(name)
            else:
                self.files.setdefault(name, b"")

    def _walk(self, parts: list[str]) -> str | None:
        """Follows a path link by link.

        Returns the place it leads to, or None if outside of the trees.
        """
        place, rest, followed = parts[0], parts[1:], 0
        while rest:
            step = f"{place}/{rest.pop(0)}"
            mode = os.lstat(self._path(step)).st_mode
            if not stat.S_ISLNK(mode):
                if stat.S_ISDIR(mode):
                    self.folders.add(step)
                place = step
                continue

            followed += 1
            if followed > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = _inside(step, os.readlink(self._path(step)))
            self.links[step] = target
            parts = os.path.normpath(f"{place}/{target}").split("/")
            if target.startswith("/") or parts[0] not in self.roots:
                # The target is outside. It is read, so that an error of the read is stored; without
                # an error it is left out.
                _content(self._path(step))
                return None
            place, rest = parts[0], [*parts[1:], *rest]
        return place

    def _name(self, path: str) -> str | None:
        """Returns the name of a path in the file; None if it is in no tree."""
        for top, root in self.roots.items():
            if path.startswith(f"{root}/"):
                name = f"{top}/{os.path.normpath(path[len(root) + 1 :])}"
                return None if name.startswith(_OTHER_TREES) else name
        return None

    def _path(self, name: str) -> str:
        top, _, rest = name.partition("/")
        return f"{self.roots[top]}/{rest}" if rest else self.roots[top]


def pack(
    file: Path, roots: Roots, scan: Callable[[], Inventory], *, redact: bool = False
) -> tuple[Inventory, int]:
    """Runs `scan` and writes what it reads into a file.

    Returns the inventory, and the number of files and links. The same trees give the same bytes.
    With `redact`, serial numbers are replaced by others of the same form. Raises OSError if the
    file cannot be written; then an old file stays as it was. Raises LookFailedError if we could not
    look.
    """
    tops = {"sys": str(roots.sys), "proc": str(roots.proc), HOST: roots.host}
    with sysfs.recording() as accesses:
        inventory = scan()

    # The accesses are read again, one by one, because the scan sees only values, not links on the
    # way.
    trees = _Trees(roots=tops)
    for path, follow in sorted(accesses):
        trees.take(path, follow=follow)
    files = {name: content for name, content in trees.files.items() if name not in trees.folders}
    if redact:
        serials = _replacements(inventory)
        files = {name: _redact(content, serials) for name, content in files.items()}

    about = {"format": 1, "roots": tops, "errors": dict(sorted(trees.errors.items()))}
    with _replacement_of(file) as stream, _tar_into(stream) as archive:
        _add(archive, ABOUT, f"{json.dumps(about, indent=1)}\n".encode())
        for name in sorted({*trees.folders, *trees.links, *files}):
            if name in trees.links:
                _add(archive, name, link=trees.links[name])
            elif name in trees.folders:
                _add(archive, name)
            else:
                _add(archive, name, files[name])
    return inventory, len(files) + len(trees.links)


@contextlib.contextmanager
def _replacement_of(file: Path) -> Iterator[IO[bytes]]:
    """Yields a stream. Its content replaces the file if the block ends without an exception.

    Root may write into a folder of another user, who can guess the temporary name: whatever has
    that name is removed, never written to. Only the owner can read the file, because it has serial
    numbers.
    """
    unfinished = file.with_name(f".{file.name}.new")
    unfinished.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    stream = open(os.open(unfinished, flags, 0o600), "wb")  # noqa: SIM115
    try:
        with stream:
            yield stream
        unfinished.replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise


def _tar_into(stream: IO[bytes]) -> tarfile.TarFile:
    return tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT)


def _add(archive: tarfile.TarFile, name: str, content: bytes | None = None, link: str = "") -> None:
    """Adds an entry without a time and an owner, so that the same trees give the same bytes."""
    entry = tarfile.TarInfo(name)
    if content is not None:
        entry.size, entry.mode = len(content), 0o444
        archive.addfile(entry, io.BytesIO(content))
        return
    if link:
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, link, 0o777
    else:
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    archive.addfile(entry)


def _inside(name: str, target: str) -> str:
    """Returns the target of the link `name` as it is written into the tar file.

    An absolute target of a link below HOST becomes a relative one. Any other target is unchanged.
    """
    if name.startswith(f"{HOST}/") and target.startswith("/"):
        return os.path.relpath(f"{HOST}{target}", os.path.dirname(name))
    return target


def _content(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return sysfs.read_to_end(descriptor, _LARGEST_FILE)
    finally:
        os.close(descriptor)


def _replacements(inventory: Inventory) -> dict[bytes, bytes]:
    """Returns a substitute for each serial number, of the same form and derived from it.

    KFD prints the numbers of AMD's GPUs in decimal, so these have two substitutes.
    """
    replacements = {}
    for uuid in sorted({gpu.uuid for gpu in inventory.gpus if gpu.uuid}):
        digest = hashlib.sha256(uuid.encode()).hexdigest()
        if uuid.startswith("GPU-"):
            groups = (digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32])
            other = "-".join(("GPU", *groups))
        else:
            other = digest[:16]
            replacements[str(int(uuid, 16)).encode()] = str(int(other, 16)).encode()
        replacements[uuid.encode()] = other.encode()
    return replacements


def _redact(content: bytes, serials: Mapping[bytes, bytes]) -> bytes:
    for serial, other in serials.items():
        content = content.replace(serial, other)
    return _BUILDER.sub(b"(redacted)", content)


# ---------------------------------------------------------------- unpacking


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A capture that is unpacked on disk."""

    root: Path  # the folder that has everything, as the machine's root has
    roots: Roots
    names: tuple[tuple[str, str], ...]  # of each tree: its path here, and on the machine

    def with_original_paths(self, inventory: Inventory) -> Inventory:
        """Returns an Inventory of these trees with the paths of the machine in its texts."""
        skipped = []
        for one in inventory.skipped:
            skipped.append(replace(one, reason=self._original(one.reason)))
        return Inventory.from_unsorted(map(self._gpu, inventory.gpus), skipped)

    def _gpu(self, gpu: Gpu) -> Gpu:
        libraries = gpu.libraries
        if libraries is not None:
            libraries = replace(libraries, reason=self._original(libraries.reason))
        return replace(gpu, notes=tuple(map(self._original, gpu.notes)), libraries=libraries)

    def _original(self, text: str) -> str:
        for here, there in self.names:
            text = text.replace(f"{here}/", f"{there}/")
        return text


def unpack(file: Path, folder: Path) -> Replay:
    """Unpacks the trees of a capture into an empty folder, where they can be scanned.

    Until `stop_replay`, reads of these trees fail as they failed on the machine. Raises ValueError
    if the file is no capture. The file may be malicious: nothing in it can lead out of the folder,
    and its size is limited.
    """
    try:
        tree = _Tree(_read_limited(file))
        original_roots, errors = _about(tree.about)

        # As on the machine, the other trees are below the host's root. Links may lead through this.
        tree.folders.add(HOST)
        tree.links |= {f"{HOST}/sys": "../sys", f"{HOST}/proc": "../proc"}
        links = tree.links_that_stay_inside()
    except ValueError as error:
        raise ValueError(f"{file} is no capture: {error}") from error

    _write_tree(tree, links, folder)

    root = folder / HOST
    roots = Roots.in_folder(root)
    here = {"sys": str(roots.sys), "proc": str(roots.proc), HOST: roots.host}
    errors_here = {}
    for name, code in errors.items():
        top, _, rest = name.partition("/")
        errors_here[f"{here[top]}/{rest}"] = code
    sysfs.replay_errors(errors_here)
    names = tuple((here[top], original) for top, original in original_roots.items())
    return Replay(root=root, roots=roots, names=names)


def stop_replay() -> None:
    """Ends the replay of errors of the last capture."""
    sysfs.replay_errors({})


def _read_limited(file: Path) -> bytes:
    with file.open("rb") as stream:
        data = stream.read(_LARGEST_CAPTURE + 1)
    if len(data) > _LARGEST_CAPTURE:
        raise ValueError(f"it has more than {_LARGEST_CAPTURE >> 20} MiB")
    return data


class _Tree:
    """The content of a capture, by name. Each name is unique, and its folders are there as well."""

    def __init__(self, data: bytes) -> None:
        """Parses a tar file. Raises ValueError if it has an entry that no capture has."""
        self.about: bytes | None = None
        self.folders: set[str] = set()
        self.links: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        self._size = 0
        for entry in tar.entries(data):
            self._add(entry)

    def _add(self, entry: tar.Entry) -> None:
        name = entry.name
        if name == ABOUT and entry.kind == tar.FILE and self.about is None:
            self.about = entry.content
            return

        self._size += len(entry.content)
        count = len(self.folders) + len(self.links) + len(self.files)
        is_small = len(entry.content) <= _LARGEST_FILE and self._size <= _LARGEST_CAPTURE
        if not is_small or count >= _MOST_ENTRIES or not _is_inside(name):
            raise ValueError(f"{name!r} must not be in it")

        above = name.rpartition("/")[0]
        while above and above not in self.folders:
            self._add_folder(above)
            above = above.rpartition("/")[0]

        match entry.kind:
            case tar.FOLDER:
                self._add_folder(name)
            case tar.FILE:
                self._check_new(name)
                self.files[name] = entry.content
            case tar.LINK:
                self._check_new(name)
                self.links[name] = entry.target
            case _:
                raise ValueError(f"{name!r} must not be in it")

    def _add_folder(self, name: str) -> None:
        if name in self.files or name in self.links:
            raise ValueError(f"it has {name!r} twice")
        if len(self.folders) >= _MOST_FOLDERS:
            raise ValueError(f"it has more than {_MOST_FOLDERS:,} folders")
        self.folders.add(name)

    def _check_new(self, name: str) -> None:
        if name in self.files or name in self.links or name in self.folders:
            raise ValueError(f"it has {name!r} twice")
        if name in _TOPS:
            raise ValueError(f"{name!r} must be a folder")

    def links_that_stay_inside(self) -> dict[str, str]:
        """Returns the links that never lead out of the trees. Other links are left out."""
        walk = _Walk(self.links)
        return {name: target for name, target in self.links.items() if walk.stays_inside(name)}


class _Walk:
    """Follows links as the kernel would, without a disk.

    The text of a link is not enough: behind another link, `..` leads to the folder above that
    link's target.
    """

    def __init__(self, links: Mapping[str, str]) -> None:
        self._links = links

        # The steps of all walks together. Links through links can need exponentially many.
        self._steps = 0

    def stays_inside(self, name: str) -> bool:
        """Returns True if a link leads into one of the trees, and never above them on its way."""
        place = name.split("/")
        rest: list[str] = []
        followed = 0
        while True:
            target = self._links.get("/".join(place))
            if target is not None:
                followed += 1
                if followed > _MOST_LINKS:
                    return True  # the kernel goes no further, either
                if target.startswith("/") or not 0 < len(os.fsencode(target)) < _LONGEST_PATH:
                    return False
                place.pop()
                rest += reversed(target.split("/"))

            # A missing name counts as a folder: the kernel stops there, so the rest does not
            # matter.
            step = ""
            while rest and step in ("", "."):
                step = rest.pop()
                self._steps += 1
            if self._steps > _MOST_STEPS:
                raise ValueError("its links are a maze")
            if step in ("", "."):
                return bool(place)
            if step != "..":
                place.append(step)
                if place[0] not in _TOPS:
                    return False
            elif place:
                place.pop()
            else:
                return False


def _is_inside(name: str) -> bool:
    """Returns True if a name is a valid path in one of the trees."""
    parts = name.split("/")
    if parts[0] not in _TOPS or {"", ".", ".."} & set(parts) or "\0" in name:
        return False
    if f"{name}/".startswith(_OTHER_TREES):
        return False
    return len(parts) <= _DEEPEST and len(os.fsencode(name)) < _LONGEST_NAME


def _write_tree(tree: _Tree, links: Mapping[str, str], folder: Path) -> None:
    for name in sorted(tree.folders):
        os.mkdir(folder / name, 0o700)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for name, content in tree.files.items():
        with open(os.open(folder / name, flags, 0o600), "wb") as file:
            file.write(content)

    # Links are made last, so that no file is written through one.
    for name, target in links.items():
        os.symlink(target, folder / name)


def _about(content: bytes | None) -> tuple[dict[str, str], dict[str, int]]:
    """Returns the paths of the trees on the machine, and the errors of accesses by name."""
    if content is None:
        raise ValueError(f"it has no {ABOUT}")

    try:
        about = json.loads(content)
        roots = {top: about["roots"][top] for top in _TOPS}
        errors = dict(about["errors"].items())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{ABOUT} cannot be understood") from error

    # The roots appear in texts for people, so they must be printable.
    if not all(type(root) is str and root.isprintable() for root in roots.values()):
        raise ValueError(f"{ABOUT}: a root is no path")
    if not all(type(code) is int and 0 < code < _ERRORS for code in errors.values()):
        raise ValueError(f"{ABOUT}: an error is none of the kernel's")
    if not all(name.partition("/")[0] in roots for name in errors):
        raise ValueError(f"{ABOUT} names what is in no tree")
    return roots, errors
