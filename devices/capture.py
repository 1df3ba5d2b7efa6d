"""Captures what a scan reads of a machine into a tar file, and puts such a file down as a tree that
scans alike.

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
_LIMIT, _ENTRIES = 1 << 22, 200_000
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
    )  # what the kernel answered, by the path that was asked

    def take(self, path: str, *, follow: bool) -> None:
        name = self._name(path)
        if name is None:
            return
        try:
            above, _, last = name.rpartition("/")
            place = self._walk(name.split("/") if follow else above.split("/"))
            if place is not None and not follow and last:
                self._note_link(f"{place}/{last}")
                return
            if place is None:
                return
            status = os.lstat(self._path(place))
            if stat.S_ISDIR(status.st_mode):
                self._list(place)
            elif stat.S_ISREG(status.st_mode):
                self.files[place] = _content(self._path(place))
            else:
                self.errors[name] = errno.EIO
        except OSError as error:
            if error.errno != errno.ENOENT:
                self.errors[name] = error.errno or errno.EIO

    def _note_link(self, name: str) -> None:
        status = os.lstat(self._path(name))
        if stat.S_ISLNK(status.st_mode):
            self.links[name] = _inside(name, os.readlink(self._path(name)))
        elif stat.S_ISDIR(status.st_mode):
            self.folders.add(name)
        else:
            self.files.setdefault(name, b"")

    def _list(self, folder: str) -> None:
        """Everything has its name, so that the same is found there; what was not read has no
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
            status = os.lstat(self._path(step))
            if not stat.S_ISLNK(status.st_mode):
                if stat.S_ISDIR(status.st_mode):
                    self.folders.add(step)
                place = step
                continue
            target = _inside(step, os.readlink(self._path(step)))
            followed += 1
            if followed > 40:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            self.links[step] = target
            where = os.path.normpath(f"{place}/{target}").split("/")
            if target.startswith("/") or where[0] not in self.roots:
                _content(
                    self._path(step)
                )  # an answer that the file cannot give: it is an error, or is left out
                return None
            place, rest = where[0], [*where[1:], *rest]
        return place

    def _name(self, path: str) -> str | None:
        for name, root in self.roots.items():
            if path.startswith(f"{root}/") and (
                name != HOST or not path.startswith(("/sys/", "/proc/"))
            ):
                return f"{name}/{os.path.normpath(path[len(root) + 1 :])}"
        return None

    def _path(self, name: str) -> str:
        top, _, rest = name.partition("/")
        return f"{self.roots[top]}/{rest}" if rest else self.roots[top]


def write(
    file: Path, roots: Roots, look: Callable[[], Inventory], *, redact: bool = False
) -> tuple[Inventory, int]:
    """Writes what `look` reads; returns what it saw, and how many files and links are in the tar
    file.
    """
    tops = {"sys": str(roots.sys), "proc": str(roots.proc), HOST: roots.host}
    with sysfs.recording() as paths:
        inventory = look()
    trees = _Trees(roots=tops)
    for path, follow in sorted(paths):
        trees.take(path, follow=follow)
    files = {name: content for name, content in trees.files.items() if name not in trees.folders}
    if redact:
        serials = _replacements(inventory)
        files = {name: _redacted(content, serials) for name, content in files.items()}
    about = {"format": 1, "roots": tops, "errors": dict(sorted(trees.errors.items()))}
    # Under another name first: whoever reads it must never see half of it.
    unfinished = file.with_name(f".{file.name}.new")
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
    """The same trees give the same bytes: no clock and no user in it."""
    entry = tarfile.TarInfo(name)
    if content is not None:
        entry.size, entry.mode = len(content), 0o444
    elif link:
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, link, 0o777
    else:
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    tar.addfile(entry, io.BytesIO(content) if content is not None else None)


def _inside(name: str, target: str) -> str:
    """A link from the host's root as one that leads to the same within the file."""
    if name.startswith(f"{HOST}/") and target.startswith("/"):
        return os.path.relpath(f"{HOST}{target}", os.path.dirname(name))
    return target


def _content(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        content = b""
        while len(content) < _LIMIT and (more := os.read(descriptor, _LIMIT)):
            content += more
        return content
    finally:
        os.close(descriptor)


def _replacements(inventory: Inventory) -> dict[bytes, bytes]:
    """Of each serial number one that is made of it and has its form. KFD prints that of AMD as a
    decimal number.
    """
    found = {}
    for uuid in sorted({gpu.uuid for gpu in inventory.gpus if gpu.uuid}):
        digest = hashlib.sha256(uuid.encode()).hexdigest()
        if uuid.startswith("GPU-"):
            other = (
                f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
            )
        else:
            other = digest[:16]
            found[str(int(uuid, 16)).encode()] = str(int(other, 16)).encode()
        found[uuid.encode()] = other.encode()
    return found


def _redacted(content: bytes, serials: Mapping[bytes, bytes]) -> bytes:
    for serial, other in serials.items():
        content = content.replace(serial, other)
    return _BUILDER.sub(b"(redacted)", content)


# ---------------------------------------------------------------- and back


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A capture that lies on disk as trees. `with_original_paths` says paths as they were on the machine."""

    roots: Roots
    names: tuple[tuple[str, str], ...]

    def with_original_paths(self, inventory: Inventory) -> Inventory:
        return Inventory.of(
            (self._gpu(gpu) for gpu in inventory.gpus),
            (replace(skipped, reason=self._text(skipped.reason)) for skipped in inventory.skipped),
        )

    def _gpu(self, gpu: Gpu) -> Gpu:
        libraries = gpu.libraries
        if libraries is not None:
            libraries = replace(libraries, reason=self._text(libraries.reason))
        return replace(gpu, notes=tuple(map(self._text, gpu.notes)), libraries=libraries)

    def _text(self, text: str) -> str:
        for here, there in self.names:
            text = text.replace(f"{here}/", f"{there}/")
        return text


def read(file: Path, folder: Path) -> Replay:
    """Puts the trees of a tar file below an empty folder. ValueError if it is no capture; whoever
    made it may wish us ill, so nothing of it leads out of the folder.
    """
    try:
        with tarfile.open(file, "r:") as tar:
            members = _checked(tar)
            about = _about(tar, members)
            for member in members:
                path = folder / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                if member.isdir():
                    path.mkdir(exist_ok=True)
                elif member.isreg():
                    content = tar.extractfile(member)
                    path.write_bytes(content.read() if content else b"")
            for member in members:  # links last: nothing is written through one
                if member.issym():
                    (folder / member.name).symlink_to(member.linkname)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise ValueError(f"{file} is no capture: it has {error.filename} twice") from error
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise ValueError(f"{file} is no capture: {error}") from error
    roots = replace(Roots.under(folder), host=str(folder / HOST))
    here = {"sys": str(roots.sys), "proc": str(roots.proc), HOST: roots.host}
    sysfs.replay_errors(
        {
            f"{here[name.partition('/')[0]]}/{name.partition('/')[2]}": code
            for name, code in about[1].items()
        }
    )
    return Replay(roots=roots, names=tuple((here[top], there) for top, there in about[0].items()))


def stop_replay() -> None:
    """The answers of the last capture that was read are not given any more."""
    sysfs.replay_errors({})


def _checked(tar: tarfile.TarFile) -> Sequence[tarfile.TarInfo]:
    found: list[tarfile.TarInfo] = []
    for member in tar:
        parts = member.name.split("/")
        inside = member.name == ABOUT or (parts[0] in _TOPS and not {"", ".", ".."} & set(parts))
        small = member.size <= _LIMIT and len(found) < _ENTRIES
        if not inside or not small or not (member.isreg() or member.isdir() or member.issym()):
            raise ValueError(f"{member.name!r} must not be in it")
        if member.issym() and (
            member.linkname.startswith("/")
            or os.path.normpath(f"{os.path.dirname(member.name)}/{member.linkname}").split("/")[0]
            not in _TOPS
        ):
            continue  # a link out of the trees leads nowhere here
        found.append(member)
    return found


def _about(
    tar: tarfile.TarFile, members: Sequence[tarfile.TarInfo]
) -> tuple[dict[str, str], dict[str, int]]:
    first = next((member for member in members if member.name == ABOUT), None)
    content = tar.extractfile(first) if first is not None and first.isreg() else None
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
