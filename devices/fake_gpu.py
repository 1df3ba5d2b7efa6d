"""What one fake GPU has in each of the trees: its files, the links to it, its device nodes.

Facts about real trees only: names, units, line ends, permissions, what is missing. Nothing is
written here.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field

from .models import Model

UVM_MAJOR, CAPS_MAJOR, KFD_MAJOR, VFIO_MAJOR, NVIDIA_MAJOR, DRM_MAJOR = 511, 508, 235, 240, 195, 226
NVIDIA_VERSION = "580.95.05"
WITHOUT_DRM = ("", "vfio-pci", "virtio-pci")
_CARD_ONLY = ("ast", "mgag200", "bochs-drm")
_WRITABLE = (
    "driver_override",
    "config",
    "enable",
    "msi_bus",
    "numa_node",
    "reset_method",
    "sriov_numvfs",
)
_AER = {
    "correctable": "RxErr BadTLP BadDLLP Rollover Timeout NonFatalErr CorrIntErr HeaderOF TOTAL_ERR_COR",
    "nonfatal": "Undefined DLP SDES TLP FCP CmpltTO CmpltAbrt UnxCmplt RxOF MalfTLP ECRC UnsupReq ACSViol UncorrIntErr "
    "BlockedTLP AtomicOpBlocked TLPBlockedErr PoisonTLPBlocked TOTAL_ERR_NONFATAL",
}
_AER["fatal"] = _AER["nonfatal"].replace("NONFATAL", "FATAL")


@dataclass(slots=True)
class Function:
    """One GPU or virtual function, and its place once that is known."""

    model: Model
    driver: str  # empty: bound to none
    console: bool
    domain: int
    mode: str = ""  # how an AMD GPU is divided, SPX if empty
    memory_mode: str = "NPS1"
    instances: int = 0  # of MIG
    virtual: int = 0  # functions made of it
    physical: Function | None = None  # that this virtual one is made of
    index: int = 0  # among those
    address: str = ""
    bridges: tuple[str, ...] = ("pci0000:00",)  # the root complex, and the ports below it
    numa: int = -1  # not told
    card: int = 0
    render: int = 0
    partitions: list[tuple[int, int, int]] = field(
        default_factory=list
    )  # those after the first: number, card, render
    minor: int = 0  # NVIDIA's own count
    agent: int = 0  # KFD's number of its first node
    group: int = -1  # of the IOMMU

    @property
    def folder(self) -> str:
        return "/".join(("sys/devices", *self.bridges, self.address))

    @property
    def drm(self) -> dict[str, int]:
        if self.driver in WITHOUT_DRM:
            return {}
        card = {f"card{self.card}": self.card}
        return card if self.driver in _CARD_ONLY else card | {f"renderD{self.render}": self.render}

    @property
    def parts(self) -> int:
        """Into how many partitions an AMD GPU is divided."""
        if self.driver != "amdgpu":
            return 1
        return {"": 1, "SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}.get(self.mode, self.model.more.dies)


def mode_of(path: str) -> int:
    """Permissions of a file, by its name."""
    return 0o644 if path.rpartition("/")[2] in _WRITABLE else 0o444


def files(function: Function) -> dict[str, str | bytes]:
    """Content by path; text without its newline."""
    found: dict[str, str | bytes] = {
        f"{function.folder}/{name}": value for name, value in _values(function).items()
    }
    for name, minor in function.drm.items():
        found[f"{function.folder}/drm/{name}/dev"] = f"{DRM_MAJOR}:{minor}"
    for path, values in neighbours(function).items():
        found |= {f"{path}/{name}": value for name, value in values.items()}
    if function.driver == "nvidia" and function.physical is None:
        found[f"proc/driver/nvidia/gpus/{function.address}/information"] = _information(function)
        found |= _instances(function)
    for number, card, render in function.partitions:
        for name, minor in ((f"card{card}", card), (f"renderD{render}", render)):
            found[f"sys/devices/platform/amdgpu_xcp_{number}/drm/{name}/dev"] = (
                f"{DRM_MAJOR}:{minor}"
            )
    if function.driver == "amdgpu":
        for part in range(function.parts):
            found |= _agent(function, part)
    if function.driver == "vfio-pci":
        found[f"sys/devices/virtual/vfio/{function.group}/dev"] = f"{VFIO_MAJOR}:{function.group}"
    return found


def places(function: Function) -> list[str]:
    """Folders that are its own, below which everything goes with it."""
    found = [function.folder, f"proc/driver/nvidia/gpus/{function.address}"]
    if function.driver == "nvidia":
        found.append(f"proc/driver/nvidia/capabilities/gpu{function.minor}")
    found += [f"sys/devices/platform/amdgpu_xcp_{number}" for number, _, _ in function.partitions]
    if function.driver == "amdgpu":
        nodes = range(function.agent, function.agent + function.parts)
        found += [f"sys/devices/virtual/kfd/kfd/topology/nodes/{node}" for node in nodes]
    if function.group >= 0:
        found.append(f"sys/kernel/iommu_groups/{function.group}")
    if function.driver == "vfio-pci":
        found.append(f"sys/devices/virtual/vfio/{function.group}")
    sound = sound_of(function)
    return [*found, sound] if sound else found


def sound_of(function: Function) -> str:
    """The folder of the function beside it that makes the sound of its screen."""
    return (
        f"{function.folder[:-1]}1"
        if function.model.sound != "-" and function.physical is None
        else ""
    )


def links(function: Function) -> dict[str, str]:
    """What points to it, or from it to elsewhere; the link on the bus aside."""
    found = {f"sys/class/drm/{name}": f"{function.folder}/drm/{name}" for name in function.drm}
    found |= {f"{function.folder}/drm/{name}/device": function.folder for name in function.drm}
    for number, card, render in function.partitions:
        folder = f"sys/devices/platform/amdgpu_xcp_{number}"
        for name in (f"card{card}", f"renderD{render}"):
            found |= {
                f"sys/class/drm/{name}": f"{folder}/drm/{name}",
                f"{folder}/drm/{name}/device": folder,
            }
    if function.driver:
        found[f"{function.folder}/driver"] = f"sys/bus/pci/drivers/{function.driver}"
        found[f"sys/bus/pci/drivers/{function.driver}/{function.address}"] = function.folder
    if function.group >= 0:
        found[f"{function.folder}/iommu_group"] = f"sys/kernel/iommu_groups/{function.group}"
        found[f"sys/kernel/iommu_groups/{function.group}/devices/{function.address}"] = (
            function.folder
        )
    if function.driver == "vfio-pci":
        found[f"sys/class/vfio/{function.group}"] = f"sys/devices/virtual/vfio/{function.group}"
    if function.physical is not None:
        found[f"{function.folder}/physfn"] = function.physical.folder
        found[f"{function.physical.folder}/virtfn{function.index}"] = function.folder
    for name in function.drm:
        if function.model.name.startswith("intel:"):
            kind = "card" if name.startswith("card") else "render"
            found[f"dev/dri/by-path/pci-{function.address}-{kind}"] = f"dev/dri/{name}"
    return found


def nodes(function: Function) -> dict[str, tuple[int, int]]:
    found = {f"dev/dri/{name}": (DRM_MAJOR, minor) for name, minor in function.drm.items()}
    for _, card, render in function.partitions:
        found |= {
            f"dev/dri/card{card}": (DRM_MAJOR, card),
            f"dev/dri/renderD{render}": (DRM_MAJOR, render),
        }
    if function.driver == "nvidia" and function.physical is None:
        found[f"dev/nvidia{function.minor}"] = (NVIDIA_MAJOR, function.minor)
        for minor in _capabilities(function).values():
            found[f"dev/nvidia-caps/nvidia-cap{minor}"] = (CAPS_MAJOR, minor)
    if function.driver == "vfio-pci":
        found[f"dev/vfio/{function.group}"] = (VFIO_MAJOR, function.group)
    return found


def neighbours(function: Function) -> dict[str, dict[str, str]]:
    """Functions beside it that are no GPUs, by folder: the ports before it and the sound of its
    screen.
    """
    if function.physical is not None:
        return {}
    found: dict[str, dict[str, str]] = {}
    more = function.model.more
    for depth, ids in enumerate((more.port, *(more.switch[:2] if more.switch else ())), 1):
        if depth < len(function.bridges):
            path = "/".join(("sys/devices", *function.bridges[: depth + 1]))
            found[path] = _ids(ids[:4], ids[5:], "060400") | _port(function, depth)
    if sound := sound_of(function):
        found[sound] = _ids(function.model.ids[:4], function.model.sound, "040300")
    return found


def _ids(vendor: str, device: str, kind: str) -> dict[str, str]:
    return {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": f"0x{kind}"}


def _port(function: Function, depth: int) -> dict[str, str]:
    """What the port at this depth says of the link below it, but the one towards the slot of the
    link above it.
    """
    more = function.model.more
    slot = more.speed, more.width
    if depth == 1:
        return (
            _link(("Unknown", "0"), ("32.0", "16"))
            if more.coherent
            else _link(slot, (more.speed, "16"))
        )
    return _link(slot, slot) if depth == 2 else _link(_own(function), _own(function))


def _own(function: Function) -> tuple[str, str]:
    """Speed and width of the link that the GPU itself has."""
    more = function.model.more
    return more.inner if more.switch and more.inner[0] else (more.speed, more.width)


def _link(now: tuple[str, str], most: tuple[str, str]) -> dict[str, str]:
    found = {}
    for which, (speed, width) in (("current", now), ("max", most)):
        found[f"{which}_link_speed"] = speed if speed == "Unknown" else f"{speed} GT/s PCIe"
        found[f"{which}_link_width"] = width
    return found


def _values(function: Function) -> dict[str, str | bytes]:
    """Files of the function's folder."""
    model, more = function.model, function.model.more
    vendor, device = model.ids.split(":")
    board_vendor, board = model.board.split(":")
    driver = f"DRIVER={function.driver}\n" if function.driver else ""
    ids = tuple(number.upper() for number in (vendor, device, board_vendor, board))
    kind = tuple(model.class_code[at : at + 2] for at in (0, 2, 4))
    modalias = "pci:v0000{}d0000{}sv0000{}sd0000{}".format(*ids) + "bc{}sc{}i{}".format(*kind)
    values: dict[str, str | bytes] = {
        "vendor": f"0x{vendor}",
        "device": f"0x{device}",
        "subsystem_vendor": f"0x{board_vendor}",
        "subsystem_device": f"0x{board}",
        "class": f"0x{model.class_code}",
        "revision": f"0x{model.revision}",
        "numa_node": str(function.numa),
        "driver_override": "(null)",
        "enable": "1",
        "modalias": modalias,
        "uevent": f"{driver}PCI_CLASS={model.class_code.lstrip('0').upper()}\nPCI_ID={model.ids.upper()}\n"
        f"PCI_SUBSYS_ID={model.board.upper()}\nPCI_SLOT_NAME={function.address}\nMODALIAS={modalias}",
    }
    if function.physical is not None:
        return values | _link(("Unknown", "0"), _own(function))
    values |= {"power_state": "D0", "config": _config(function)}
    if model.name == "intel:uhd770":  # on no link at all
        values |= _link(("Unknown", "0"), ("Unknown", "255"))
    if len(function.bridges) > 1:
        values |= _link((more.speed, "1") if more.coherent else _own(function), _own(function))
        for name, counters in _AER.items():
            values[f"aer_dev_{name}"] = "\n".join(f"{counter} 0" for counter in counters.split())
    if model.class_code.startswith("0300"):
        values["boot_vga"] = "1" if function.console else "0"
    if more.virtual:
        values |= {"sriov_totalvfs": str(more.virtual), "sriov_numvfs": str(function.virtual)}
        values |= {
            "sriov_offset": "1",
            "sriov_stride": "1",
            "sriov_drivers_autoprobe": "1",
            "sriov_vf_device": device,
        }
    return values | _amdgpu(function) | _intel(function)


def _config(function: Function) -> bytes:
    """The head of PCI's configuration space: ids, command, status, revision, class."""
    vendor, device = (
        int(number, 16).to_bytes(2, "little") for number in function.model.ids.split(":")
    )
    kind = bytes.fromhex(function.model.class_code)[::-1]
    head = vendor + device + b"\x07\x04\x10\x00" + bytes.fromhex(function.model.revision) + kind
    return head + bytes(64 - len(head))


def _amdgpu(function: Function) -> dict[str, str]:
    if function.driver != "amdgpu":
        return {}
    model, more = function.model, function.model.more
    values = {
        "mem_info_vram_total": model.memory,
        "mem_info_vram_used": "10813440",
        "mem_info_vis_vram_total": model.memory,
        "mem_info_gtt_total": "67108864000",
        "vbios_version": more.vbios,
        "gpu_busy_percent": "0",
        f"hwmon/hwmon{function.card}/name": "amdgpu",
    }
    for number, sensor in enumerate(more.sensors.split(), 1):
        stem = f"hwmon/hwmon{function.card}/temp{number}"
        if sensor != "-":
            values |= {f"{stem}_input": "41000", f"{stem}_label": sensor.rstrip("*")}
        if sensor[-1] not in "-*":
            values[f"{stem}_crit"] = "100000"
    if model.name != "amd:strix":  # an APU has no id of its own and no memory of a maker
        values |= {
            "unique_id": unique_id(function),
            "mem_info_vram_vendor": "hynix",
            "pcie_replay_count": "0",
        }
    if model.product != "-":
        values |= {
            "product_name": model.product,
            "product_number": "102-G30211-00",
            "serial_number": "692231000131",
        }
        values |= {f"ras/{block}_err_count": "ue: 0\nce: 0" for block in ("umc", "gfx", "sdma")}
    if more.modes:
        values["available_compute_partition"] = more.modes
        values["current_compute_partition"] = function.mode or "SPX"
        values["available_memory_partition"] = more.memory_modes
        values["current_memory_partition"] = function.memory_mode
    return values


def _intel(function: Function) -> dict[str, str]:
    model, more = function.model, function.model.more
    values = {}
    if function.driver == "i915":
        if model.memory != "-":
            values[f"drm/card{function.card}/lmem_total_bytes"] = model.memory
        for gt in range(more.tiles):
            values[f"drm/card{function.card}/gt/gt{gt}/rps_max_freq_mhz"] = "1600"
    if function.driver == "xe":
        values["tile0/gt0/freq0/max_freq"] = "2850"
        values["tile0/gt1/freq0/max_freq"] = "1500"
        values["vram_d3cold_threshold"] = "300"
    return values


def unique_id(function: Function) -> str:
    return hashlib.sha256(function.address.encode()).hexdigest()[:16]


def _information(function: Function) -> str:
    """As the NVIDIA driver prints it, tabs and all."""
    gpu_uuid = uuid.uuid5(uuid.NAMESPACE_DNS, f"{function.address}.claimd.dev")
    bits = function.model.more.address_bits
    return (
        f"Model: \t\t {function.model.product}\nIRQ:   \t\t {64 + function.minor}\nGPU UUID: \t GPU-{gpu_uuid}\n"
        f"Video BIOS: \t {function.model.more.vbios}\nBus Type: \t PCIe\nDMA Size: \t {bits} bits\n"
        f"DMA Mask: \t {(1 << bits) - 1:#x}\nBus Location: \t {function.address}\nDevice Minor: \t {function.minor}\n"
        f"GPU Firmware: \t {NVIDIA_VERSION}\nGPU Excluded:\t No"
    )


def _capabilities(function: Function) -> dict[str, int]:
    """What may be opened of a GPU that MIG divides, and by which minor: from 3 on, after `config`
    and `monitor`, and nine for each instance that could be. The smallest instances, which these
    are, are numbered from 7.
    """
    found: dict[str, int] = {}
    first = 3 + function.minor * 135
    for instance in range(7, 7 + function.instances):
        found[f"gi{instance}/access"] = first + instance * 9
        found[f"gi{instance}/ci0/access"] = first + instance * 9 + 1
    return found


def _instances(function: Function) -> dict[str, str]:
    folder = f"proc/driver/nvidia/capabilities/gpu{function.minor}/mig"
    return {
        f"{folder}/{name}": f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1"
        for name, minor in _capabilities(function).items()
    }


def _agent(function: Function, part: int) -> dict[str, str]:
    """A node of KFD's topology: the GPU, or a partition of it."""
    model, more = function.model, function.model.more
    bus, device = (
        int(function.address.split(":")[1], 16),
        int(function.address.split(":")[2][:2], 16),
    )
    render = function.render if part == 0 else function.partitions[part - 1][2]
    size = int(model.memory) // function.parts
    folder = f"sys/devices/virtual/kfd/kfd/topology/nodes/{function.agent + part}"
    number = int(unique_id(function), 16) if model.name != "amd:strix" else 0
    values = {
        "cpu_cores_count": 0, "simd_count": more.simds // function.parts, "mem_banks_count": 1, "caches_count": 217,
        "io_links_count": 1, "p2p_links_count": 0, "cpu_core_id_base": 0, "simd_id_base": 2147487744 + part,
        "max_waves_per_simd": more.waves[0], "lds_size_in_kb": 64, "gds_size_in_kb": 0, "num_gws": 64,
        "wave_front_size": more.waves[1],
        "array_count": 4, "simd_arrays_per_engine": 1, "cu_per_simd_array": 10, "simd_per_cu": more.simds_per_unit,
        "max_slots_scratch_cu": 32, "gfx_target_version": more.gfx, "vendor_id": int(model.ids[:4], 16),
        "device_id": int(model.ids[5:], 16), "location_id": part << 28 | bus << 8 | device << 3,
        "domain": function.domain, "drm_render_minor": render, "hive_id": 0, "num_sdma_engines": 2,
        "num_sdma_xgmi_engines": 0, "num_sdma_queues_per_engine": 8, "num_cp_queues": 24,
        "max_engine_clk_fcompute": 2100, "local_mem_size": 0, "fw_version": 177, "capability": 1986040480,
        "debug_prop": 1495, "sdma_fw_version": 24, "unique_id": number, "num_xcc": max(1, more.dies // function.parts),
    }  # fmt: skip
    bank = f"heap_type 1\nsize_in_bytes {size}\nflags 0\nwidth 8192\nmem_clk_max 1300"
    return {
        f"{folder}/gpu_id": str(
            int(hashlib.sha256(f"{function.address} {part}".encode()).hexdigest()[:4], 16) + 1
        ),
        f"{folder}/name": more.chip,
        f"{folder}/properties": "\n".join(f"{name} {value}" for name, value in values.items()),
        f"{folder}/mem_banks/0/properties": bank,
    }
