"""A vendor's user-space libraries on the host: how a container can get those of an NVIDIA driver
without any hook.

Either the host has a CDI spec that names the GPU, whose id then says it all; or the libraries that
the host's loader knows are mounted one by one. Nothing is loaded or run here.
"""

from __future__ import annotations

import posixpath
import re
import struct
from dataclasses import dataclass

from . import sysfs
from .gpu import CDI, MOUNTED, NONE, Libraries, Mount, Roots

KIND = "nvidia.com/gpu"
_FOLDERS = ("etc/cdi", "var/run/cdi")
_SPEC = re.compile(r"(?!\.).*nvidia.*\.(?:json|ya?ml)")
_GPU_NODE = re.compile(r"/dev/nvidia[0-9]+")
# Where loaders look without being told, in images of the two large families: a library is put into
# both.
_TRIPLETS = {0x03: "x86_64-linux-gnu", 0x0A: "aarch64-linux-gnu"}
_MAGIC = b"glibc-ld.so.cache1.1"
_PROGRAMS = ("usr/bin/nvidia-smi",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the host offers. `specs` are the GPUs that its CDI specs name: name, nodes, file."""

    specs: tuple[tuple[str, frozenset[str], str], ...] = ()
    mounts: tuple[Mount, ...] = ()
    libraries: int = 0
    why: str = ""  # what was amiss


def look(roots: Roots, version: str | None) -> Host:
    """What there is for a driver of this version."""
    said: list[str] = []
    specs = tuple(found for folder in _FOLDERS for found in _specs(f"{roots.host}/{folder}", said))
    cache = sysfs.content(f"{roots.host}/etc/ld.so.cache", said)
    known = _cache(cache) if cache is not None else []
    if version is None:
        said.append("the driver's version is not known")
    elif not known:
        said.append(f"{roots.host}/etc/ld.so.cache: missing or of a form that is not known")
    mounts: dict[str, str] = {}
    libraries = set()
    for soname, path, triplet in known if version else ():
        real = _real(roots, path)
        if real is None or not real.endswith(f".so.{version}"):
            continue
        libraries.add(real)
        for folder in (f"/usr/lib/{triplet}", "/usr/lib64"):
            mounts.setdefault(f"{folder}/{soname}", real)
    for program in _PROGRAMS if mounts else ():
        real = _real(roots, f"/{program}")
        if real is not None:
            mounts[f"/{program}"] = real
    files = tuple(sorted(Mount(source=real, target=place) for place, real in mounts.items()))
    return Host(specs=specs, mounts=files, libraries=len(libraries), why="; ".join(said))


def choose(host: Host, uuid: str | None, node: str) -> Libraries:
    """For one GPU: the id of the host's CDI spec, or what to mount, and in words which and why."""
    for name, nodes, file in host.specs:
        if name == uuid or (name.isdecimal() and nodes == {node}):
            host_cdi = f"{KIND}={name}"
            reason = f"the host's CDI spec {file} has it as {host_cdi}"
            return Libraries(how=CDI, reason=reason, host_cdi=host_cdi)

    seen = f"no CDI spec of {KIND} is on the host"
    if host.specs:
        seen = f"no CDI spec of {KIND} on the host names it"
    if host.mounts:
        reason = f"{host.libraries} libraries of the host's are mounted: {seen}"
        return Libraries(how=MOUNTED, reason=reason, mounts=host.mounts)
    reason = (
        f"none are mounted, the image has to bring them: {seen}, "
        "and no library of the driver is known to it"
    )
    return Libraries(how=NONE, reason=reason)


def _specs(folder: str, said: list[str]) -> list[tuple[str, frozenset[str], str]]:
    found = []
    for file in sysfs.names(folder, []) or ():
        if not _SPEC.fullmatch(file):
            continue
        path = f"{folder}/{file}"
        content = sysfs.content(path, said)
        if content is None:
            continue
        try:
            text = content.decode()
            devices = _json_devices(text) if file.endswith(".json") else _yaml_devices(text)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            said.append(f"{path}: cannot be understood: {type(error).__name__}")
            continue
        found += [
            (name, nodes, path) for name, nodes in devices if re.fullmatch(r"[\w.:-]{1,128}", name)
        ]
    return found


def _json_devices(text: str) -> list[tuple[str, frozenset[str]]]:
    import json  # few hosts have a spec of this form

    spec = json.loads(text)
    if spec["kind"] != KIND:
        return []
    return [
        (
            str(device["name"]),
            _nodes(
                str(node.get("path", ""))
                for node in device.get("containerEdits", {}).get("deviceNodes") or []
            ),
        )
        for device in spec["devices"]
    ]


def _yaml_devices(text: str) -> list[tuple[str, frozenset[str]]]:
    """Of the YAML that NVIDIA's own tool writes, which is all that is understood: one key a line,
    lists of mappings.
    """
    if not re.search(rf"^kind: ['\"]?{re.escape(KIND)}['\"]?\s*$", text, re.M):
        return []
    _, _, below = f"\n{text}".partition("\ndevices:")
    section = re.split(r"^[^\s#-]", below, maxsplit=1, flags=re.M)[0]
    first = re.search(r"^( *)- ", section, re.M)
    if first is None:
        return []
    found = []
    for block in re.split(rf"^{first[1]}- ", section, flags=re.M)[1:]:
        name = re.search(rf"^(?:{first[1]}  )?name: ['\"]?([^'\"\s]+)['\"]?\s*$", block, re.M)
        if name is not None:
            found.append(
                (name[1], _nodes(re.findall(r"^\s*-? *path: ['\"]?(/dev/[^'\"\s]+)", block, re.M)))
            )
    return found


def _nodes(paths: object) -> frozenset[str]:
    return frozenset(path for path in paths if _GPU_NODE.fullmatch(path))  # type: ignore[attr-defined]


def _cache(content: bytes) -> list[tuple[str, str, str]]:
    """Soname, path and triplet of the libraries of 64 bits that the host's loader knows."""
    start = content.find(_MAGIC)
    if start < 0 or len(content) < start + 48:
        return []
    data = content[start:]
    (count,) = struct.unpack_from("=I", data, 20)
    found = []
    for index in range(min(count, (len(data) - 48) // 24)):
        flags, key, value = struct.unpack_from("=iII", data, 48 + index * 24)
        triplet = _TRIPLETS.get(flags >> 8 & 0xFF)
        soname, path = _string(data, key), _string(data, value)
        if (
            triplet
            and flags & 0xFF == 3
            and re.fullmatch(r"lib[\w.+-]+\.so[\w.]*", soname)
            and path.startswith("/")
        ):
            found.append((soname, path, triplet))
    return found


def _string(data: bytes, start: int) -> str:
    end = data.find(b"\0", start)
    return data[start:end].decode(errors="replace") if 0 < start < end else ""


def _real(roots: Roots, path: str) -> str | None:
    """Where a path of the host leads, on the host; None if nowhere."""
    place, rest = "", posixpath.normpath(path).lstrip("/").split("/")
    for _ in range(100):
        if not rest:
            return place if sysfs.is_file(f"{roots.host}{place}") else None
        step = f"{place}/{rest.pop(0)}"
        target = sysfs.link(f"{roots.host}{step}", [])
        if target is None:
            place = step
            continue
        whole = target if target.startswith("/") else f"{place}/{target}"
        place, rest = "", [*posixpath.normpath(whole).lstrip("/").split("/"), *rest]
    return None
