"""Which way a container gets the libraries of NVIDIA's driver, and why.

Either a CDI spec on the host names the GPU and all its files are there: its id says it all. Or the
driver's files are mounted one by one. Nothing is loaded or run here.
"""

from __future__ import annotations

from . import host_cdi, nvidia_files, values
from .gpu import CDI, MOUNTED, NONE, Libraries, Roots
from .host_files import HostFiles


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the host has for all its GPUs."""

    devices: tuple[host_cdi.Device, ...] = ()
    driver: nvidia_files.Driver | None = None
    lack: str = ""  # why there is no driver


def look(roots: Roots, version: str | None) -> Host:
    """What the host has for a kernel module of this version; trouble is said in `lack`."""
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
    """For the GPU with this uuid and node: a CDI id of the host's, or what to mount, or neither.

    A spec counts only if every file that it names is there: one of a driver that was updated since
    would keep any container from starting.
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
    """By its uuid; an index counts as the tool did, so that the node tells which GPU it is."""
    if device.name == uuid:
        return True
    return device.name.isdecimal() and device.nodes == {node}


def _lack(places: list[HostFiles], root: str, version: str) -> str:
    others = nvidia_files.other_versions(places)
    if not others:
        where = root or "the places where it may lie"
        return f"no library of driver {version} is in {where}"
    other, place = next(iter(others.items()))
    return (
        f"the kernel has driver {version} loaded, but the libraries in {place} are of {other}:"
        " load the new module, by a reboot if nothing else helps"
    )
