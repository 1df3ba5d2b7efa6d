"""Checks of the GPUs and their needs: kernel drivers, libraries, links, IOMMU, health."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from claimd.common import names
from claimd.node.report import health_state
from claimd_devices import (
    kfd,
    monitor,
    nvidia_files,
    nvml_health,
    scan,
    symptoms,
    sysfs,
    vendors,
    vfio,
    vfio_aliases,
)
from claimd_devices.gpu import NONE, VFIO, Gpu, Inventory, NotUsable, Roots, Skipped
from claimd_devices.health import HealthState

from . import processes
from .check import Check, Finding, Level
from .sight import Sight

GPUS = Check(
    name="gpus",
    level=Level.WARNING,
    looks_at="the PCI bus, by the rules `include` and `exclude`",
    expected="a GPU that claimd can publish",
    remedy="claimd devices -o wide says what each display device is left alone for",
)
DRIVER_LOADED = Check(
    name="driver-loaded",
    level=Level.ERROR,
    looks_at="which kernel driver each GPU is bound to",
    expected="the vendor's own driver: nvidia, amdgpu, i915 or xe",
    remedy="on the node see `lspci -k` and `dmesg`; load the vendor's driver, and keep others such "
    "as nouveau from the GPU",
)
LEFT_ALONE = Check(
    name="gpus-left-alone",
    level=Level.WARNING,
    looks_at="GPUs whose driver does not tell what it has to",
    expected="every GPU that the rules take is published",
    remedy="claimd devices -o wide on the node; `dmesg` has what the driver says",
)
NVIDIA_UVM = Check(
    name="nvidia-uvm",
    level=Level.ERROR,
    looks_at="`nvidia-uvm` in /proc/devices, where there is a GPU of NVIDIA",
    expected="the module is loaded: without it CUDA fails in every container",
    remedy="on the node run `modprobe nvidia-uvm`, and write nvidia-uvm into a file of "
    "/etc/modules-load.d, so that a reboot loads it",
)
DRIVER_VERSION = Check(
    name="driver-versions",
    level=Level.ERROR,
    looks_at="the version of NVIDIA's kernel module, compared with those of the libraries on the host",
    expected="libraries of the version that the kernel has loaded",
    remedy="the driver was updated and the old module is still loaded: reboot the node, or end what "
    "uses the GPUs and load the new module",
)
DRIVER_LIBRARIES = Check(
    name="driver-libraries",
    level=Level.ERROR,
    looks_at="where the host has NVIDIA's libraries, by the settings `host-root` and "
    "`nvidia-driver-root`",
    expected="the libraries of the driver, for containers to mount",
    remedy="where the driver lies in a place of its own, set `nvidia-driver-root`; in a pod use "
    "deploy/components/nvidia, which mounts the host's root; where images bring the libraries, set "
    "`require-libraries` to false",
)
DRIVER_ROOT = Check(
    name="driver-root",
    level=Level.ERROR,
    looks_at="the setting `nvidia-driver-root`",
    expected="a folder of the host",
    remedy="correct `nvidia-driver-root`, or leave it empty to have the usual places looked at",
)
LIBRARY_HOOK = Check(
    name="library-hook",
    level=Level.WARNING,
    looks_at="the program in the folder `library-hook-dir`",
    expected="a program there that can be run: claimd puts it there at its start",
    remedy="see that the folder is the host's under the same path, and is mounted without noexec",
)
DEV_CHAR = Check(
    name="dev-char-links",
    level=Level.WARNING,
    looks_at="/dev/char of the host, where the runtime has systemd make the cgroups",
    expected="a link in /dev/char for each node of a GPU: systemd knows devices by these alone, and "
    "at the next `systemctl daemon-reload` takes all others from running containers",
    remedy="on the node have systemd-tmpfiles make the links at each boot, as the finding lists them; "
    "NVIDIA's toolkit has `nvidia-ctk system create-dev-char-symlinks --create-all`",
)
KFD = Check(
    name="kfd",
    level=Level.NOTE,
    looks_at="whether we may read /sys/class/kfd, where a GPU of AMD is not for virtual machines",
    expected="the properties of KFD: they have compute units, and in rare cases the partitions",
    remedy="add deploy/components/amd, if pods ask for computeUnits; else leave it as it is",
)
IOMMU = Check(
    name="iommu",
    level=Level.ERROR,
    looks_at="IOMMU groups, where `vfio` or `vfio-bind` is set",
    expected="the IOMMU turned on: a virtual machine is given a whole group",
    remedy="turn on VT-d or AMD-Vi in the firmware, add `intel_iommu=on` (Intel) and `iommu=pt` to "
    "the kernel's command line, and reboot",
)
VFIO_PCI = Check(
    name="vfio-pci",
    level=Level.ERROR,
    looks_at="the kernel driver vfio-pci, or the variant that the kernel has for a GPU, where "
    "`vfio-bind` is set",
    expected="vfio-pci is loaded, and so is the variant",
    remedy="on the node run `modprobe vfio-pci`, and write vfio-pci into a file of "
    "/etc/modules-load.d",
)
HEALTH = Check(
    name="gpu-health",
    level=Level.ERROR,
    looks_at="what the kernel shows of each GPU now, and what a running claimd has seen",
    expected="GPUs that are well",
    remedy="docs/taints.md says of each kind what it means and what to do",
)
KERNEL_LOG = Check(
    name="kernel-log",
    level=Level.NOTE,
    looks_at="whether the kernel's log can be read, where Xid errors and failed resets are reported",
    expected="a kernel log that claimd may read: some errors are reported only there",
    remedy="add deploy/components/kernel-log, or set kernel.dmesg_restrict=0 on the node",
)
FABRIC = Check(
    name="fabric-manager",
    level=Level.ERROR,
    looks_at="whether the Fabric Manager runs, where the node has NVSwitches or a GPU has not joined "
    "their fabric",
    expected="a running nv-fabricmanager: without it CUDA does not start on the GPUs",
    remedy="install the nvidia-fabricmanager of the driver's version, and run `systemctl enable --now "
    "nvidia-fabricmanager` on the node. If the switches are in machines of their own (GB200 NVL72), "
    "look there",
)
CHECKS = (
    GPUS,
    DRIVER_LOADED,
    LEFT_ALONE,
    NVIDIA_UVM,
    DRIVER_VERSION,
    DRIVER_LIBRARIES,
    DRIVER_ROOT,
    LIBRARY_HOOK,
    DEV_CHAR,
    KFD,
    IOMMU,
    VFIO_PCI,
    HEALTH,
    FABRIC,
    KERNEL_LOG,
)


_SWITCH = re.compile(r"nvidia-nvswitch[0-9]{1,3}")  # a device node of an NVSwitch

# The level of a finding about a GPU's health, by its severity.
_LEVELS = {"failed": Level.ERROR, "degraded": Level.WARNING, "unknown": Level.WARNING}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The GPUs of a node, and the node's drivers and files for them."""

    inventory: Inventory
    vendors: frozenset[str]  # of all GPUs that are there, usable or not
    are_fake: bool = False  # the running claimd has fake GPUs
    driver_of: Mapping[str, str]  # by the address of a GPU that is left alone
    has_uvm: bool = True
    # The version of NVIDIA's kernel module, and those of the libraries on the host with their
    # places.
    module_version: str | None = None
    library_versions: Mapping[str, str] = field(default_factory=dict)
    needs_libraries: bool = True
    driver_root: str = ""
    driver_root_exists: bool = True
    hook: str = ""  # the program's path; empty: the hook is off
    hook_works: bool = True
    # Device nodes without a link, as path and numbers. None: the host's /dev cannot be seen.
    without_link: tuple[tuple[str, str], ...] | None = ()
    needs_kfd: bool = True
    kfd_trouble: str = ""
    wants_vfio: bool = False
    wants_binding: bool = False
    has_iommu: bool = True
    missing_vfio: tuple[str, ...] = ()  # drivers for virtual machines that are not loaded
    sick: tuple[tuple[str, str, str], ...] = ()  # device, severity, sentence and source
    unwatched: tuple[str, ...] = ()
    switches: int = 0  # NVSwitches of the node
    unjoined: tuple[str, ...] = ()  # GPUs that have not joined the fabric, by NVIDIA's library
    # None: the processes cannot be seen.
    has_fabric_manager: bool | None = None

    @property
    def left_alone(self) -> list[Skipped]:
        """The GPUs that claimd should publish but cannot."""
        return [skipped for skipped in self.inventory.skipped if not skipped.expected]


def judge(facts: Facts, systemd_cgroup: bool | None, how: str) -> list[Finding]:
    """Judges the GPUs.

    `systemd_cgroup` is True if the runtime has systemd make the cgroups, and None if that is not
    known. `how` tells people how to see more than we can.
    """
    return [
        _judge_gpus(facts),
        *_judge_unpublished(facts),
        _judge_uvm(facts),
        _judge_versions(facts),
        *_judge_libraries(facts),
        _judge_root(facts),
        _judge_hook(facts),
        _judge_links(facts, systemd_cgroup, how),
        _judge_kfd(facts),
        *_judge_virtual_machines(facts),
        *_judge_health(facts),
        _judge_fabric(facts, how),
    ]


def _judge_gpus(facts: Facts) -> Finding:
    if facts.inventory.gpus:
        fake = ", which are fake" if facts.are_fake else ""
        return GPUS.success(f"{len(facts.inventory.gpus)} GPUs and parts{fake}")
    if facts.left_alone:
        return GPUS.failure(f"none of {len(facts.left_alone)} display devices can be published")
    seen = "there is no GPU on the PCI bus, or the rules leave all alone"
    return GPUS.failure(seen, level=Level.NOTE)


def _judge_unpublished(facts: Facts) -> list[Finding]:
    """Judges the GPUs that are left alone, because a driver is missing or tells too little."""
    unbound, others = [], []
    for skipped in facts.left_alone:
        # nouveau takes a GPU of NVIDIA, but gives claimd nothing to publish.
        driver = facts.driver_of.get(skipped.address, "")
        is_foreign = driver in ("", "nouveau") and "bound to" in skipped.reason
        seen = f"{skipped.address}: {skipped.reason}"
        if is_foreign:
            unbound.append(DRIVER_LOADED.failure(seen))
        elif not _has_own_check(facts, skipped.reason):
            others.append(LEFT_ALONE.failure(seen))

    if not unbound:
        unbound = [DRIVER_LOADED.success("every GPU has its driver")]
    return unbound + (others or [LEFT_ALONE.success("none that would be expected to be published")])


def _has_own_check(facts: Facts, reason: str) -> bool:
    """Returns True if another check reports the reason for which a GPU is left alone."""
    if "nvidia-uvm" in reason:
        return not facts.has_uvm
    can_bind = facts.has_iommu and not facts.missing_vfio
    return "for virtual machines" in reason and not can_bind


def _judge_uvm(facts: Facts) -> Finding:
    if "nvidia" not in facts.vendors:
        return NVIDIA_UVM.success("no GPU of NVIDIA is here")
    if facts.has_uvm:
        return NVIDIA_UVM.success("it is loaded")
    return NVIDIA_UVM.failure("the module nvidia-uvm is not loaded")


def _judge_versions(facts: Facts) -> Finding:
    loaded = facts.module_version
    is_any_without = False
    for gpu in facts.inventory.gpus:
        if gpu.libraries and gpu.libraries.how == NONE:
            is_any_without = True

    # Only a GPU without libraries shows that those on the host do not fit.
    if loaded is None or not facts.library_versions or not is_any_without:
        return DRIVER_VERSION.success("no libraries are missing for their version")
    if loaded in facts.library_versions:
        return DRIVER_VERSION.success(
            f"{loaded}, in the kernel and in {facts.library_versions[loaded]}"
        )
    version, place = next(iter(facts.library_versions.items()))
    return DRIVER_VERSION.failure(
        f"the kernel has driver {loaded} loaded, and the libraries in {place} are of {version}"
    )


def _judge_libraries(facts: Facts) -> list[Finding]:
    # Another fault may be the cause, and is reported by its own check.
    if _judge_versions(facts).level != Level.WELL:
        why = "the libraries are there, and are another driver's"
        return [DRIVER_LIBRARIES.unknown(why, f"mend {DRIVER_VERSION.name} first")]
    if facts.driver_root and not facts.driver_root_exists:
        why = f"they are looked for in {facts.driver_root}, which is not there"
        return [DRIVER_LIBRARIES.unknown(why, f"mend {DRIVER_ROOT.name} first")]

    # A GPU for virtual machines needs no libraries on the host.
    by_reason: dict[str, list[str]] = {}
    for gpu in facts.inventory.gpus:
        if gpu.libraries is not None and gpu.libraries.how == NONE and gpu.kind != VFIO:
            by_reason.setdefault(gpu.libraries.reason, []).append(gpu.name)
    if not by_reason:
        return [DRIVER_LIBRARIES.success("every GPU that needs libraries has them")]

    sentences = []
    for reason, gpus in by_reason.items():
        sentences.append(f"{_shorten(gpus)}: {reason}")
    if not facts.needs_libraries:
        return [DRIVER_LIBRARIES.success(f"not required: {'; '.join(sentences)}")]
    return list(map(DRIVER_LIBRARIES.failure, sentences))


def _shorten(gpus: list[str]) -> str:
    return ", ".join(gpus) if len(gpus) <= 3 else f"{gpus[0]} and {len(gpus) - 1} more"


def _judge_root(facts: Facts) -> Finding:
    if not facts.driver_root:
        return DRIVER_ROOT.success("not set: the usual places are looked at")
    if facts.driver_root_exists:
        return DRIVER_ROOT.success(facts.driver_root)
    return DRIVER_ROOT.failure(f"nvidia-driver-root is {facts.driver_root}, which is not there")


def _judge_hook(facts: Facts) -> Finding:
    if not facts.hook:
        return LIBRARY_HOOK.success("not set: containers are given none")
    if facts.hook_works:
        return LIBRARY_HOOK.success(facts.hook)
    return LIBRARY_HOOK.failure(f"{facts.hook} is not there, or cannot be run")


def _judge_links(facts: Facts, systemd_cgroup: bool | None, how: str) -> Finding:
    if facts.without_link is None:
        return DEV_CHAR.unknown("the host's /dev cannot be seen from here", how)
    if not facts.without_link:
        return DEV_CHAR.success("every node has its link")

    # Only systemd forgets devices without a link.
    if systemd_cgroup is False:
        return DEV_CHAR.success(
            "links are missing, and the runtime makes its cgroups without systemd"
        )

    shown = ", ".join(f"{path} ({numbers})" for path, numbers in facts.without_link[:4])
    more = f" and {len(facts.without_link) - 4} more" if len(facts.without_link) > 4 else ""
    if systemd_cgroup is None:
        return DEV_CHAR.unknown(
            f"no link in /dev/char leads to {shown}{more}; whether it matters depends on the runtime: "
            "with systemd's cgroups the next daemon-reload takes these from running containers",
            "on the node: grep -r SystemdCgroup /etc/containerd; "
            "grep cgroupDriver /var/lib/kubelet/config.yaml",
        )
    return DEV_CHAR.failure(
        f"no link in /dev/char leads to {shown}{more}, and systemd makes the containers' cgroups",
        remedy=_remedy_for_links(facts.without_link),
    )


def _remedy_for_links(nodes: tuple[tuple[str, str], ...]) -> str:
    """Returns the lines for systemd-tmpfiles that make the links now and at each boot."""
    lines = [
        "on the node write these lines into /etc/tmpfiles.d/claimd-gpus.conf: they hold at each boot"
    ]
    for path, numbers in nodes[:16]:
        lines.append(f"    L+ /dev/char/{numbers} - - - - ..{path.removeprefix('/dev')}")
    lines += [
        "and for now run, as root",
        "    systemd-tmpfiles --create /etc/tmpfiles.d/claimd-gpus.conf",
        "(NVIDIA's toolkit has `nvidia-ctk system create-dev-char-symlinks --create-all`, for a unit "
        "that starts after the driver.) A container that has lost its GPU needs a restart",
    ]
    return "\n".join(lines)


def _judge_kfd(facts: Facts) -> Finding:
    if not facts.needs_kfd:
        return KFD.success("no GPU of AMD needs it")
    if facts.kfd_trouble:
        return KFD.failure(facts.kfd_trouble)
    return KFD.success("it can be read")


def _judge_virtual_machines(facts: Facts) -> list[Finding]:
    if not facts.wants_vfio:
        reason = "no GPU is for virtual machines"
        return [IOMMU.success(reason), VFIO_PCI.success(reason)]

    iommu = IOMMU.success("it is on")
    if not facts.has_iommu:
        iommu = IOMMU.failure("the kernel has no IOMMU group: the IOMMU is off")
    binding = VFIO_PCI.success("loaded, or not needed")
    missing = facts.missing_vfio
    if facts.wants_binding and missing:
        binding = VFIO_PCI.failure(
            f"vfio-bind is set, and not loaded: {', '.join(missing)}",
            remedy=f"on the node run `modprobe -a {' '.join(missing)}`, and write each of the "
            "names into a file of /etc/modules-load.d",
        )
    return [iommu, binding]


def _judge_health(facts: Facts) -> list[Finding]:
    findings = []
    for device, severity, sentence in facts.sick:
        level = _LEVELS.get(severity, Level.NOTE)
        findings.append(HEALTH.failure(f"{device}: {severity}: {sentence}", level=level))
    if not findings:
        findings = [HEALTH.success("nothing is wrong with any")]

    # The drivers of all vendors report some errors only in the kernel's log.
    if facts.unwatched and facts.vendors:
        findings += map(KERNEL_LOG.failure, facts.unwatched)
    else:
        findings.append(KERNEL_LOG.success("everything is watched"))
    return findings


def _judge_fabric(facts: Facts, how: str) -> Finding:
    if not facts.switches and not facts.unjoined:
        return FABRIC.success("not needed: there is no NVSwitch")
    if facts.has_fabric_manager is None:
        return FABRIC.unknown("the processes of the host cannot be seen", how)
    if facts.has_fabric_manager:
        return FABRIC.success("it runs")
    reason = f"NVSwitches: {facts.switches}"
    if facts.unjoined:
        reason = f"not joined: {', '.join(facts.unjoined)}"
    return FABRIC.failure(f"nv-fabricmanager does not run ({reason})")


# ---------------------------------------------------------------- looking


def look(sight: Sight) -> Facts:
    """Scans the GPUs, and reads the node's drivers and files for them.

    This can take long, because the kernel's files of a sick GPU may block.
    """
    settings, roots = sight.settings, sight.roots
    inventory = scan.scan(roots, settings.rules, with_link_now=True)
    left_alone = _vendors_of(roots, inventory)
    present = {gpu.vendor for gpu in inventory.gpus} | left_alone

    # KFD tells about the GPUs of amdgpu, which does not drive those for virtual machines.
    needs_kfd = "amd" in left_alone or any(
        gpu.vendor == "amd" and gpu.kind != VFIO for gpu in inventory.gpus
    )

    # Some faults show only over time. These come from the state of a running claimd.
    read_symptoms = symptoms.read_gpus
    if settings.nvml:
        read_symptoms = nvml_health.Reader(roots, waits=True).read_gpus
    state = _read_health_state(sight, sight.plugin_folder)
    report = monitor.check_once(roots, inventory, state, read_symptoms)
    sick = []
    unjoined = []
    for device, findings in report.findings:
        for finding in findings:
            if finding.kind == "fabric":
                unjoined.append(device)
            sick.append((device, str(finding.severity), finding.text))

    # All GPUs of NVIDIA have the same kernel module.
    version = None
    versions: dict[str, str] = {}
    if "nvidia" in present:
        for gpu in inventory.gpus:
            if gpu.vendor == "nvidia":
                version = gpu.driver_version
                break
        places = nvidia_files.roots(roots.host, roots.nvidia_driver)
        versions = nvidia_files.other_versions(places)

    hook = ""
    if settings.library_hook_dir:
        hook = f"{settings.library_hook_dir}/{names.LIBRARY_HOOK}"

    driver_of = {}
    for skipped in inventory.skipped:
        # The reason why the GPU is left alone says that its driver cannot be read.
        with contextlib.suppress(NotUsable):
            driver_of[skipped.address] = vfio.driver_of(roots, skipped.address)

    return Facts(
        inventory=inventory,
        vendors=frozenset(present),
        are_fake=bool(sight.fakes),
        driver_of=driver_of,
        has_uvm=_has_uvm(roots),
        module_version=version,
        library_versions=versions,
        needs_libraries=settings.refuses_without_libraries and not sight.fakes,
        driver_root=settings.nvidia_driver_root,
        driver_root_exists=os.path.isdir(f"{roots.host}{settings.nvidia_driver_root}"),
        hook=hook,
        hook_works=os.access(sight.place(Path(hook)), os.X_OK),
        without_link=_nodes_without_link(sight, inventory.gpus),
        needs_kfd=needs_kfd,
        kfd_trouble=kfd.read_topology(roots).unreadable if needs_kfd else "",
        wants_vfio=settings.vfio or bool(settings.vfio_bind),
        wants_binding=bool(settings.vfio_bind),
        has_iommu=bool(sysfs.names(f"{roots.sys}/kernel/iommu_groups", [])),
        missing_vfio=_missing_vfio(roots, inventory),
        sick=tuple(sick),
        switches=sum(map(bool, map(_SWITCH.fullmatch, sysfs.names(str(roots.dev), []) or ()))),
        unjoined=tuple(unjoined),
        has_fabric_manager=_has_fabric_manager(sight),
        unwatched=report.unwatched,
    )


def _missing_vfio(roots: Roots, inventory: Inventory) -> tuple[str, ...]:
    """Returns vfio-pci and the variants that GPUs need, as far as they are not loaded."""
    wanted = {vfio.DRIVER}
    aliases = vfio_aliases.read_aliases(roots, [])
    for skipped in inventory.skipped:
        if "for virtual machines" in skipped.reason:
            # If the GPU's ids cannot be read, the reason in `skipped` says so.
            with contextlib.suppress(NotUsable):
                wanted.add(vfio.driver_for(roots, skipped.address, aliases))
    loaded = f"{roots.sys}/bus/pci/drivers"
    return tuple(sorted(name for name in wanted if not sysfs.is_folder(f"{loaded}/{name}")))


def _read_health_state(sight: Sight, folder: Path) -> HealthState:
    """Reads the health state of a running claimd, or an empty one if it cannot be read."""
    try:
        return health_state.read_file(folder, health_state.boot_id(sight.roots))
    except (OSError, ValueError):
        return HealthState()


def _vendors_of(roots: Roots, inventory: Inventory) -> set[str]:
    """Returns the vendors of the GPUs that are left alone, by their PCI ids."""
    present = set()
    for skipped in inventory.skipped:
        number = sysfs.hexadecimal(f"{roots.sys}/bus/pci/devices/{skipped.address}/vendor", [])
        for vendor in vendors.VENDORS:
            if number == vendor.VENDOR_ID and not skipped.expected:
                present.add(vendor.NAME)
    return present


def _has_uvm(roots: Roots) -> bool:
    lines = sysfs.lines(f"{roots.proc}/devices", []) or []
    return any(line.split()[1:] == ["nvidia-uvm"] for line in lines)


def _nodes_without_link(sight: Sight, gpus: tuple[Gpu, ...]) -> tuple[tuple[str, str], ...] | None:
    """Returns the device nodes, with their numbers, that have no link in the host's /dev/char."""
    if sight.files is None:
        return None
    if sight.fakes:
        return ()

    char = f"{sight.roots.dev}/char"
    missing = {}
    for gpu in gpus:
        for node in gpu.nodes:
            numbers = f"{node.major}:{node.minor}"
            if not os.path.lexists(f"{char}/{numbers}"):
                missing[node.path] = numbers
    return tuple(sorted(missing.items()))


def _has_fabric_manager(sight: Sight) -> bool | None:
    """It may run in the container of the driver."""
    if processes.is_running(str(sight.machine.proc), "nv-fabricmanager"):
        return True
    return False if sight.commands else None
