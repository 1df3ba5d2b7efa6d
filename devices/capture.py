"""Captures what a scan reads of a machine into a tar file, and puts one down as a tree to scan.

Nothing here knows what the files mean, but for the serial numbers that are replaced on request.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import stat
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import sysfs
from .gpu import Gpu, Inventory, Roots

ABOUT = "claimd-capture.json"
HOST = "host"
_TOPS = ("sys", "proc", HOST)
_LARGEST_FILE, _MOST_ENTRIES = 1 << 22, 200_000
_MOST_LINKS = 40  # that one path may lead through, as in the kernel
_BUILDER = re.compile(rb"\([^()\s]*@[^()\s]*\)")  # who built a module, and on which machine


@dataclass(slots=True)
class _Trees:
    """What of the trees goes into the file, by name in it."""

    roots: Mapping[str, str]
    folders: set[str] = field(default_factory=set)
    links: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    errors: dict[str, int] = field(
        default_factory=dict
    )  # the kernel's answer, by the path asked for

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
        """Everything in it has its name, so that the same is found there; what was not read has no
        content.
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


def write(
    file: Path, roots: Roots, scan: Callable[[], Inventory], *, redact: bool = False
) -> tuple[Inventory, int]:
    """Writes what `scan` reads; returns what it saw, and how many files and links are in the tar
    file.

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
        files = {name: _redacted(content, serials) for name, content in files.items()}

    # Under another name first: whoever reads it must never see half of it.
    unfinished = file.with_name(f".{file.name}.new")
    about = {"format": 1, "roots": tops, "errors": dict(sorted(trees.errors.items()))}
    with tarfile.open(unfinished, "w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, ABOUT, f"{json.dumps(about, indent=1)}\n".encode())
        for name in sorted({*trees.folders, *trees.links, *files}):
            if name in trees.links:
                _add(tar, name, link=trees.links[name])
            elif name in trees.folders:
                _add(tar, name)
            else:
                _add(tar, name, files[name])
    unfinished.replace(file)
    return inventory, len(files) + len(trees.links)


def _add(tar: tarfile.TarFile, name: str, content: bytes | None = None, link: str = "") -> None:
    """An entry without a clock and a user in it."""
    entry = tarfile.TarInfo(name)
    if content is not None:
        entry.size, entry.mode = len(content), 0o444
        tar.addfile(entry, io.BytesIO(content))
        return
    if link:
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, link, 0o777
    else:
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    tar.addfile(entry)


def _inside(name: str, target: str) -> str:
    """A link from the host's root as one that leads to the same within the file."""
    if name.startswith(f"{HOST}/") and target.startswith("/"):
        return os.path.relpath(f"{HOST}{target}", os.path.dirname(name))
    return target


def _content(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        content = b""
        while len(content) < _LARGEST_FILE:
            more = os.read(descriptor, _LARGEST_FILE)
            if not more:
                break
            content += more
        return content
    finally:
        os.close(descriptor)


def _replacements(inventory: Inventory) -> dict[bytes, bytes]:
    """Of each serial number one that is made of it and has its form. KFD prints that of AMD as a
    decimal number.
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


def _redacted(content: bytes, serials: Mapping[bytes, bytes]) -> bytes:
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
        return Inventory.of(map(self._gpu, inventory.gpus), skipped)

    def _gpu(self, gpu: Gpu) -> Gpu:
        libraries = gpu.libraries
        if libraries is not None:
            libraries = replace(libraries, reason=self._original(libraries.reason))
        return replace(gpu, notes=tuple(map(self._original, gpu.notes)), libraries=libraries)

    def _original(self, text: str) -> str:
        for here, there in self.names:
            text = text.replace(f"{here}/", f"{there}/")
        return text


def read(file: Path, folder: Path) -> Replay:
    """Puts the trees of a tar file below an empty folder, to be scanned there.

    ValueError if it is no capture; whoever made it may wish us ill, so nothing of it leads out of
    the folder. Until `stop_replay`, reads of these trees fail as they did on the machine.
    """
    try:
        with tarfile.open(file, "r:") as tar:
            members = _checked(tar)
            original_roots, errors = _about(tar, members)
            _extract(tar, members, folder)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise ValueError(f"{file} is no capture: it has {error.filename} twice") from error
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise ValueError(f"{file} is no capture: {error}") from error

    roots = replace(Roots.under(folder), host=str(folder / HOST))
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


def _extract(tar: tarfile.TarFile, members: Sequence[tarfile.TarInfo], folder: Path) -> None:
    for member in members:
        path = folder / member.name
        path.parent.mkdir(parents=True, exist_ok=True)
        if member.isdir():
            path.mkdir(exist_ok=True)
        elif member.isreg():
            content = tar.extractfile(member)
            path.write_bytes(content.read() if content else b"")

    # Links come last: nothing is written through one.
    for member in members:
        if member.issym():
            (folder / member.name).symlink_to(member.linkname)


def _checked(tar: tarfile.TarFile) -> Sequence[tarfile.TarInfo]:
    """The members to be put down; ValueError for a file that holds what no capture does."""
    members: list[tarfile.TarInfo] = []
    for member in tar:
        parts = member.name.split("/")
        is_inside = parts[0] in _TOPS and not {"", ".", ".."} & set(parts)
        is_small = member.size <= _LARGEST_FILE and len(members) < _MOST_ENTRIES
        is_plain = member.isreg() or member.isdir() or member.issym()
        if not (is_inside or member.name == ABOUT) or not is_small or not is_plain:
            raise ValueError(f"{member.name!r} must not be in it")

        # A link out of the trees leads nowhere here.
        if not member.issym() or _leads_inside(member):
            members.append(member)
    return members


def _leads_inside(member: tarfile.TarInfo) -> bool:
    if member.linkname.startswith("/"):
        return False
    target = os.path.normpath(f"{os.path.dirname(member.name)}/{member.linkname}")
    return target.split("/")[0] in _TOPS


def _about(
    tar: tarfile.TarFile, members: Sequence[tarfile.TarInfo]
) -> tuple[dict[str, str], dict[str, int]]:
    """Where the trees were on the machine, and the errors that the kernel gave there."""
    content = None
    for member in members:
        if member.name == ABOUT and member.isreg():
            content = tar.extractfile(member)
            break
    if content is None:
        raise ValueError(f"it has no {ABOUT}")

    try:
        about = json.loads(content.read())
        roots = {top: str(about["roots"][top]) for top in _TOPS}
        errors = {str(name): int(code) for name, code in about["errors"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{ABOUT} cannot be understood") from error
    if not all(name.partition("/")[0] in roots for name in errors):
        raise ValueError(f"{ABOUT} names what is in no tree")
    return roots, errors
