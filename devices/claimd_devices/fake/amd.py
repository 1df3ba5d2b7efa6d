"""The files of amdgpu and KFD for AMD's GPUs, whole and divided. The models are in amd_models."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from .amd_models import MODELS, AmdModel
from .gpu import Entries, FakeVendor, Function, Model, add_drm, drm_names, number, refuse

DRIVER = "amdgpu"
KFD_MAJOR = 235

# The version of AMD's own module. The module of the kernel's tree has none.
_MODULE_VERSION = "6.12.12"

_CLOSED = "closed"
_KFD = "sys/devices/virtual/kfd/kfd"
_PARTS = {"": 1, "SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}  # by mode; CPX has one for each die
_MOST_PARTS = 8  # the driver makes nodes for so many, whatever the mode
_MODES = (*_PARTS, "CPX")

_MACHINES = {
    "machine:mi300x": ("amd:mi300x=8", "numa=2", "bmc:aspeed"),
    "machine:mi300x-cpx": ("amd:mi300x=8,mode=cpx,memory_mode=nps4", "numa=2", "bmc:aspeed"),
    "machine:mi355x": ("amd:mi355x=8", "numa=2", "bmc:aspeed"),
    "machine:two-hives": ("amd:mi300x=4,hive=1", "amd:mi300x=4,hive=2", "numa=2", "bmc:aspeed"),
    "machine:mi210": ("amd:mi210=4", "roots=2", "numa=2", "bmc:matrox"),
    "machine:radeon": ("amd:radeon", "numa=0"),
    "machine:strix": ("amd:strix", "numa=0"),
}

_OPTIONS = {
    "mode=cpx": "how an AMD GPU is divided: spx, dpx, tpx, qpx or cpx",
    "memory_mode=nps4": "how the memory of a divided AMD GPU is",
    "hive=NUMBER": "which GPUs XGMI joins: those of one number; 0: none",
    "kfd=closed": "KFD's files of an AMD GPU cannot be read, as in a pod without privileges",
}


class FakeAmd(FakeVendor):
    """GPUs with amdgpu, whole or divided into partitions."""

    models = MODELS
    machines = _MACHINES
    options = _OPTIONS

    def check_options(self, model: Model, options: Mapping[str, str]) -> None:
        mode = options.get("mode", "")
        if mode.upper() not in _MODES or (mode and not _as_amd(model).modes):
            refuse("mode", mode, f"a way to divide {model.name}")
        if "hive" in options:
            number("hive", options["hive"])
        if options.get("kfd", _CLOSED) != _CLOSED:
            refuse("kfd", options["kfd"], _CLOSED)

    def count_more_drm(self, function: Function) -> int:
        return _partition_devices(function)

    def assign_numbers(self, functions: Sequence[Function], processors: int) -> None:
        """Sets the numbers of KFD's nodes, processors first, and of the partitions' platform
        devices.
        """
        next_node, next_partition = processors, 0
        for function in functions:
            if function.driver == DRIVER:
                function.numbers.index = next_node
                function.numbers.first_part = next_partition
                next_node += _parts(function)
                next_partition += _partition_devices(function)
        _join(functions)

    def machine_entries(self, functions: Sequence[Function], processors: int) -> Entries:
        ours = [function for function in functions if function.driver == DRIVER]
        if not ours:
            return Entries()

        entries = Entries(majors={"kfd": KFD_MAJOR})
        if any(function.model.product for function in ours):  # servers have AMD's own module
            entries.files["sys/module/amdgpu/version"] = _MODULE_VERSION

        entries.files[f"{_KFD}/dev"] = f"{KFD_MAJOR}:0"
        entries.files[f"{_KFD}/topology/generation_id"] = "1"
        for node in range(processors):
            folder = f"{_KFD}/topology/nodes/{node}"
            entries.files[f"{folder}/gpu_id"] = "0"
            entries.files[f"{folder}/properties"] = (
                "cpu_cores_count 8\nsimd_count 0\nmem_banks_count 1"
            )
        entries.links["sys/class/kfd/kfd"] = _KFD
        entries.nodes["dev/kfd"] = (KFD_MAJOR, 0)
        return entries

    def function_entries(self, function: Function) -> Entries:
        if function.driver != DRIVER:
            return Entries()
        entries = Entries()
        if function.physical is None:
            for name, value in _values(function).items():
                entries.files[f"{function.folder}/{name}"] = value

        for part in range(_parts(function)):
            node = f"{_KFD}/topology/nodes/{function.numbers.index + part}"
            entries.folders.append(node)
            for name, value in _kfd_node(function, part).items():
                if function.options.get("kfd") == _CLOSED:
                    entries.closed.append(f"{node}/{name}")
                else:
                    entries.files[f"{node}/{name}"] = value
        _add_discovery(entries, function)
        _add_hive(entries, function)

        # The first partition has the function's own nodes. The others have nodes of platform
        # devices, which exist even while the GPU is not divided.
        for index, (card, render) in enumerate(function.numbers.more_drm):
            device = f"sys/devices/platform/amdgpu_xcp_{function.numbers.first_part + index}"
            entries.folders.append(device)
            add_drm(entries, device, drm_names(DRIVER, card, render))
        return entries


def _as_amd(model: Model) -> AmdModel:
    assert isinstance(model, AmdModel), f"{model.name} is no model of AMD"
    return model


def _parts(function: Function) -> int:
    """Returns the number of partitions of a GPU that has AMD's driver."""
    mode = function.options.get("mode", "").upper()
    return _PARTS.get(mode, _as_amd(function.model).dies)


def _partition_devices(function: Function) -> int:
    """Returns the number of platform devices: one for each possible partition but the first."""
    if function.driver != DRIVER or not _as_amd(function.model).modes:
        return 0
    return _MOST_PARTS - 1


def _hive(function: Function) -> str:
    """Returns the number of the hive that a GPU is in; 0 if it is in none."""
    of_model = "1" if _as_amd(function.model).has_xgmi else "0"
    is_ours = function.driver == DRIVER and function.physical is None
    return function.options.get("hive", of_model) if is_ours else "0"


def _join(functions: Sequence[Function]) -> None:
    """Tells each GPU which others are in its hive. A GPU alone is in none."""
    hives: dict[tuple[str, str], list[Function]] = {}
    for function in functions:
        if function.driver == DRIVER and _hive(function) != "0":
            hives.setdefault((function.model.name, _hive(function)), []).append(function)
    for members in hives.values():
        if len(members) > 1:
            for function in members:
                function.numbers.peers = tuple(member.folder for member in members)


def _add_hive(entries: Entries, function: Function) -> None:
    """Adds what amdgpu shows of a hive: a folder of the first GPU, to which the others have links."""
    peers = function.numbers.peers
    if not peers:
        return
    key = hashlib.sha256(peers[0].encode()).hexdigest()
    hive, node = int(key[:16], 16), int(unique_id(function), 16)
    entries.files[f"{function.folder}/xgmi_device_id"] = str(node)
    if function.folder != peers[0]:
        entries.links[f"{function.folder}/xgmi_hive_info"] = f"{peers[0]}/xgmi_hive_info"
        return
    entries.files[f"{function.folder}/xgmi_hive_info/xgmi_hive_id"] = str(hive)
    for index, peer in enumerate(peers, 1):
        entries.links[f"{function.folder}/xgmi_hive_info/node{index}"] = peer


def _add_discovery(entries: Entries, function: Function) -> None:
    """Adds the table of graphics cores from the chip's firmware."""
    model = _as_amd(function.model)
    if not model.core or function.physical is not None:
        return
    die = f"{function.folder}/ip_discovery/die/0"
    entries.files[f"{die}/num_ips"] = "71"
    entries.links[f"{die}/GC"] = f"{die}/11"
    for index in range(model.dies + model.dead):
        core = f"{die}/11/{index}"
        major, minor, revision = model.core.split(".")
        values = {
            "hw_id": "11",
            "num_instance": str(index),
            "major": major,
            "minor": minor,
            "revision": revision,
            "harvest": "0x0" if index < model.dies else "0x1",
        }
        for name, value in values.items():
            entries.files[f"{core}/{name}"] = value


def _has_id(model: AmdModel) -> bool:
    return model.has_id and not model.is_apu


def unique_id(function: Function) -> str:
    """Returns the serial number of the chip."""
    return hashlib.sha256(function.address.encode()).hexdigest()[:16]


def _values(function: Function) -> dict[str, str]:
    """Returns the files that amdgpu makes in the folder of a function."""
    model = _as_amd(function.model)
    values = {
        "mem_info_vram_total": str(model.memory),
        "mem_info_vram_used": "10813440",
        "mem_info_vis_vram_total": str(model.memory),
        "mem_info_gtt_total": str(model.usable or 67108864000),
        "vbios_version": model.vbios,
        "gpu_busy_percent": "0",
    }
    values |= _sensors(model, f"hwmon/hwmon{function.numbers.card}")
    if _has_id(model):
        values["unique_id"] = unique_id(function)
    if not model.is_apu:
        values |= {
            "mem_info_vram_vendor": "hynix",
            "pcie_replay_count": "0",
        }
    if model.product:
        values |= {
            "product_name": model.product,
            "product_number": "102-G30211-00",
            "serial_number": "692231000131",
        }
        for block in ("umc", "gfx", "sdma"):
            values[f"ras/{block}_err_count"] = "ue: 0\nce: 0"
        values["ras/gpu_vram_bad_pages"] = ""
    if model.modes:
        options = function.options
        values |= {
            "available_compute_partition": model.modes,
            "current_compute_partition": options.get("mode", "").upper() or "SPX",
            "available_memory_partition": model.memory_modes,
            "current_memory_partition": options.get("memory_mode", "NPS1").upper(),
        }
    return values


def _sensors(model: AmdModel, folder: str) -> dict[str, str]:
    values = {f"{folder}/name": DRIVER}
    for index, sensor in enumerate(model.sensors.split(), 1):
        stem = f"{folder}/temp{index}"
        if sensor == "-":
            continue
        values[f"{stem}_input"] = "41000"
        values[f"{stem}_label"] = sensor.rstrip("*")
        if not sensor.endswith("*"):
            values[f"{stem}_crit"] = "100000"
    if model.power_cap:
        values[f"{folder}/power1_cap"] = str(model.power_cap * 1_000_000)
    return values


def _kfd_node(function: Function, part: int) -> dict[str, str]:
    """Returns the files of a node of KFD's topology: a GPU, or one of its partitions."""
    model = _as_amd(function.model)
    parts = _parts(function)
    domain, bus, device = function.address.split(":")
    location = part << 28 | int(bus, 16) << 8 | int(device[:2], 16) << 3
    render = function.numbers.render
    if part > 0:
        render = function.numbers.more_drm[part - 1][1]
    properties = {
        "cpu_cores_count": 0,
        "simd_count": model.simds // parts,
        "mem_banks_count": 1,
        "caches_count": 217,
        "io_links_count": 1,
        "p2p_links_count": 0,
        "cpu_core_id_base": 0,
        "simd_id_base": 2147487744 + part,
        "max_waves_per_simd": model.waves[0],
        "lds_size_in_kb": 64,
        "gds_size_in_kb": 0,
        "num_gws": 64,
        "wave_front_size": model.waves[1],
        "array_count": 4,
        "simd_arrays_per_engine": 1,
        "cu_per_simd_array": 10,
        "simd_per_cu": model.simds_per_unit,
        "max_slots_scratch_cu": 32,
        "gfx_target_version": model.gfx,
        "vendor_id": int(model.ids[:4], 16),
        "device_id": int(model.ids[5:], 16),
        "location_id": location,
        "domain": int(domain, 16),
        "drm_render_minor": render,
        "hive_id": 0,
        "num_sdma_engines": 2,
        "num_sdma_xgmi_engines": 0,
        "num_sdma_queues_per_engine": 8,
        "num_cp_queues": 24,
        "max_engine_clk_fcompute": 2100,
        "local_mem_size": 0,
        "fw_version": 177,
        "capability": 1986040480,
        "debug_prop": 1495,
        "sdma_fw_version": 24,
        "unique_id": int(unique_id(function), 16) if _has_id(model) else 0,
        "num_xcc": max(1, model.dies // parts),
    }
    bank = {
        "heap_type": 1,
        "size_in_bytes": (model.usable or model.memory) // parts,
        "flags": 0,
        "width": 8192,
        "mem_clk_max": 1300,
    }
    digest = hashlib.sha256(f"{function.address} {part}".encode()).hexdigest()
    return {
        "gpu_id": str(int(digest[:4], 16) + 1),
        "name": model.chip,
        "properties": _lines(properties),
        "mem_banks/0/properties": _lines(bank),
    }


def _lines(values: Mapping[str, int]) -> str:
    return "\n".join(f"{name} {value}" for name, value in values.items())
