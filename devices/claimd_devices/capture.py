"""Captures what a scan reads of a machine into a tar file, and puts one down as a tree to scan.

Nothing here knows what the files mean, but for the serial numbers that are replaced on request.
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

from . import sysfs, tar
from .gpu import Gpu, Inventory, Roots

ABOUT = "claimd-capture.json"
HOST = "host"
_TOPS = ("sys", "proc", HOST)

# Bytes of a file, and of all files or of a capture. A node with 64 partitions has 1 MiB.
_LARGEST_FILE, _LARGEST_CAPTURE = 1 << 22, 1 << 26

# Names in a capture: the folders of a host's libraries have thousands. A folder takes a block of the
# disk for nothing in the file.
_MOST_ENTRIES, _MOST_FOLDERS = 1 << 17, 1 << 14
_DEEPEST, _LONGEST_NAME, _LONGEST_PATH = 40, 1024, 4096

# Links that one path may lead through, as in the kernel, and names that all of them may.
_MOST_LINKS, _MOST_STEPS = 40, 1_000_000

# Numbers of the kernel's errors are smaller.
_ERRORS = 4096

_BUILDER = re.compile(rb"\([^()\s]*@[^()\s]*\)")  # who built a module, and on which machine


@dataclass(slots=True)
class _Trees:
    """What of the trees goes into the file, by name in it."""

    roots: Mapping[str, str]
    folders: set[str] = field(default_factory=set)
    links: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    # The kernel's answers, by the paths asked for.
    errors: dict[str, int] = field(default_factory=dict)

    def take(self, path: str, *, follow: bool) -> None:
        """A path that was looked at, with all that it leads through. What is missing stays so."""
        name = self._name(path)
        if name is None:
            return
        try:
            self._take(name, follow=follow)
        except OSError as error:
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
        """Something whose content was not looked at."""
        mode = os.lstat(self._path(name)).st_mode
        if stat.S_ISLNK(mode):
            self.links[name] = _inside(name, os.readlink(self._path(name)))
        elif stat.S_ISDIR(mode):
            self.folders.add(name)
        else:
            self.files.setdefault(name, b"")

    def _take_folder(self, folder: str) -> None:
        """All that is in it has its name, so that the same is found there.

        What was not read has no content.
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
        """Where a path leads, link by link; None if out of the trees."""
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
                # An answer that the file cannot give: it is an error, or is left out.
                _content(self._path(step))
                return None
            place, rest = parts[0], [*parts[1:], *rest]
        return place

    def _name(self, path: str) -> str | None:
        """What a path is called in the file; None for one that is in no tree."""
        for top, root in self.roots.items():
            if not path.startswith(f"{root}/"):
                continue
            if top == HOST and path.startswith(("/sys/", "/proc/")):
                continue  # where the host's root is our own, these are trees of their own
            return f"{top}/{os.path.normpath(path[len(root) + 1 :])}"
        return None

    def _path(self, name: str) -> str:
        top, _, rest = name.partition("/")
        return f"{self.roots[top]}/{rest}" if rest else self.roots[top]


def pack(
    file: Path, roots: Roots, scan: Callable[[], Inventory], *, redact: bool = False
) -> tuple[Inventory, int]:
    """Writes what `scan` reads; returns what it saw, and how many files and links were written.

    The same trees give the same bytes. With `redact`, serial numbers are replaced by others of their
    form. OSError if the file cannot be written: what was there before stays then.
    """
    tops = {"sys": str(roots.sys), "proc": str(roots.proc), HOST: roots.host}
    with sysfs.recording() as accesses:
        inventory = scan()

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
    """A stream whose content takes the place of a file at the end of the block, if it gets there.

    Root writes here into folders of others, who know the other name as well: whatever lies there is
    removed and not written to. Only we can read it: it has serial numbers.
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
    """An entry without a clock and a user in it."""
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
    """A link from the host's root as one that leads to the same within the file."""
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
    """Of each serial number one that is made of it and has its form.

    KFD prints that of AMD as a decimal number.
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


# ---------------------------------------------------------------- and back


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A capture that lies on disk as trees."""

    roots: Roots
    names: tuple[tuple[str, str], ...]  # of each tree: where it is here, and where it was

    def with_original_paths(self, inventory: Inventory) -> Inventory:
        """An Inventory of these trees, in which people read the paths of the machine."""
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
    """Puts the trees of a tar file below an empty folder, to be scanned there.

    ValueError if it is no capture; whoever made it may wish us ill, so nothing of it leads out of
    the folder, and it is no larger than a machine's can be. Until `stop_replay`, reads of these
    trees fail as they did on the machine.
    """
    try:
        tree = _Tree(_read_limited(file))
        original_roots, errors = _about(tree.about)
        links = tree.links_that_stay_inside()
    except ValueError as error:
        raise ValueError(f"{file} is no capture: {error}") from error
    _write_tree(tree, links, folder)

    roots = replace(Roots.in_folder(folder), host=str(folder / HOST))
    here = {"sys": str(roots.sys), "proc": str(roots.proc), HOST: roots.host}
    errors_here = {}
    for name, code in errors.items():
        top, _, rest = name.partition("/")
        errors_here[f"{here[top]}/{rest}"] = code
    sysfs.replay_errors(errors_here)
    names = tuple((here[top], original) for top, original in original_roots.items())
    return Replay(roots=roots, names=names)


def stop_replay() -> None:
    """The answers of the last capture that was read are not given any more."""
    sysfs.replay_errors({})


def _read_limited(file: Path) -> bytes:
    with file.open("rb") as stream:
        data = stream.read(_LARGEST_CAPTURE + 1)
    if len(data) > _LARGEST_CAPTURE:
        raise ValueError(f"it has more than {_LARGEST_CAPTURE >> 20} MiB")
    return data


class _Tree:
    """What is to be put down, by name. Each name is one thing, and stands in a folder."""

    def __init__(self, data: bytes) -> None:
        """ValueError for a tar file that holds what no capture does."""
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

    def links_that_stay_inside(self) -> dict[str, str]:
        """Those that lead to a place in the trees, or to none. Others lead nowhere here."""
        walk = _Walk(self.links)
        return {name: target for name, target in self.links.items() if walk.stays_inside(name)}


class _Walk:
    """Goes where the kernel would go from a link on, without a disk.

    The text of a link does not tell: after another link `..` leads to where that one has led.
    """

    def __init__(self, links: Mapping[str, str]) -> None:
        self._links = links
        self._steps = 0  # of all walks, since links that lead through links take ever more

    def stays_inside(self, name: str) -> bool:
        """Whether a link leads to one of the trees, and never above them on its way."""
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

            # What is missing counts as a folder: where nothing is, nobody gets to what follows.
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
    """Whether a name is one of a file below the trees that the kernel could have."""
    parts = name.split("/")
    if parts[0] not in _TOPS or {"", ".", ".."} & set(parts) or "\0" in name:
        return False
    return len(parts) <= _DEEPEST and len(os.fsencode(name)) < _LONGEST_NAME


def _write_tree(tree: _Tree, links: Mapping[str, str], folder: Path) -> None:
    for name in sorted(tree.folders):
        os.mkdir(folder / name, 0o700)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for name, content in tree.files.items():
        with open(os.open(folder / name, flags, 0o600), "wb") as file:
            file.write(content)

    # Links come last: nothing is written through one.
    for name, target in links.items():
        os.symlink(target, folder / name)


def _about(content: bytes | None) -> tuple[dict[str, str], dict[str, int]]:
    """Where the trees were on the machine, and the errors that the kernel gave there."""
    if content is None:
        raise ValueError(f"it has no {ABOUT}")

    try:
        about = json.loads(content)
        roots = {top: about["roots"][top] for top in _TOPS}
        errors = dict(about["errors"].items())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{ABOUT} cannot be understood") from error

    # People are shown these instead of our own paths.
    if not all(type(root) is str and root.isprintable() for root in roots.values()):
        raise ValueError(f"{ABOUT}: a root is no path")
    if not all(type(code) is int and 0 < code < _ERRORS for code in errors.values()):
        raise ValueError(f"{ABOUT}: an error is none of the kernel's")
    if not all(name.partition("/")[0] in roots for name in errors):
        raise ValueError(f"{ABOUT} names what is in no tree")
    return roots, errors
