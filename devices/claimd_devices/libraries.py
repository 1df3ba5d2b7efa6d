"""Chooses how a container gets the libraries of NVIDIA's driver, with the reason.

There are two ways. If a CDI spec on the host has the GPU, and all files of the spec are there, its
device id is enough. Otherwise the driver's files are mounted one by one. This module loads and runs
no file.
"""

from __future__ import annotations

from . import host_cdi, nvidia_files, values
from .gpu import CDI, MOUNTED, NONE, Libraries, Roots
from .host_files import HostFiles


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The CDI devices and the driver's files of the host, for all GPUs."""

    devices: tuple[host_cdi.Device, ...] = ()
    driver: nvidia_files.Driver | None = None
    lack: str = ""  # why something could not be found


def look(roots: Roots, version: str | None) -> Host:
    """Returns what the host has for a kernel module of this version. `lack` has the problems."""
    notes: list[str] = []
    devices = host_cdi.devices(HostFiles(roots.host), notes)

    driver = None
    if version is None:
        notes.append("the driver's version is not known")
    else:
        places = nvidia_files.roots(roots.host, roots.nvidia_driver)
        driver = nvidia_files.find(places, version)
        if driver is None:
            notes.append(_lack(places, roots.nvidia_driver, version))
    return Host(devices=devices, driver=driver, lack="; ".join(notes))


def choose(host: Host, uuid: str | None, node: str) -> Libraries:
    """Returns the way for a GPU: a CDI id of the host, or the files to mount, or neither.

    A spec is used only if all files that it names are there. A spec of an older driver would keep
    every container from starting.
    """
    named = [device for device in host.devices if _is_named(device, uuid, node)]
    whole = [device for device in named if device.spec.missing is None]
    if whole:
        reason = f"the host's CDI spec {whole[0].spec.path} has it as {whole[0].id}"
        return Libraries(how=CDI, reason=reason, host_cdi=tuple(device.id for device in whole))

    no_spec = "no CDI spec of NVIDIA's on the host names it"
    if named:
        spec = named[0].spec
        no_spec = f"the host's CDI spec {spec.path} names {spec.missing}, which is not there"

    if host.driver is not None:
        driver = host.driver
        reason = (
            f"{driver.libraries} libraries of driver {driver.version} in {driver.root} are mounted:"
            f" {no_spec}"
        )
        return Libraries(how=MOUNTED, reason=reason, mounts=driver.mounts)

    reason = f"none are mounted, the image has to bring them: {no_spec}, and {host.lack}"
    return Libraries(how=NONE, reason=reason)


def _is_named(device: host_cdi.Device, uuid: str | None, node: str) -> bool:
    """Returns True if the CDI device is the GPU with this uuid or this node.

    If its name is an index, the node decides: the tool that wrote the spec may count in another
    order.
    """
    if device.name == uuid:
        return True
    return device.name.isdecimal() and device.nodes == {node}


def _lack(places: list[HostFiles], root: str, version: str) -> str:
    """Returns why the driver's libraries were not found, for people."""
    others = nvidia_files.other_versions(places)
    if not others:
        where = root or "the places where it may lie"
        return f"no library of driver {version} is in {where}"
    other, place = next(iter(others.items()))
    return (
        f"the kernel has driver {version} loaded, but the libraries in {place} are of {other}:"
        " load the new module, by a reboot if nothing else helps"
    )
