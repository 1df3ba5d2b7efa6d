"""A script that asks NVIDIA's own library (NVML) about GPUs and their MIG instances.

    python -I nvml_helper.py LIBRARY [health | measure]

It loads the library (libnvidia-ml.so.1 of the host's driver) and prints one JSON document. `nvml`
runs it as a process of its own, because the library may crash or hang. It imports no other module
of claimd. `nvml` checks the form of the output.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import resource
import sys
from typing import Any

HEALTH, MEASURE = "health", "measure"
NOT_SUPPORTED = 3
_MOST_GPUS, _MOST_PARTS = 256, 64
_MOST_OUTPUT = 1 << 20
_NAME = 96  # bytes of a name or uuid in the library

# Constants of the library: the field that says what a GPU needs, the errors that could not be
# corrected, and counters since the driver was loaded.
_RECOVERY_ACTION, _UNCORRECTED, _VOLATILE = 230, 1, 0

# Retirement has two causes: several errors that were corrected, and one that was not. The sensor
# with the number 0 is that of the chip.
_INSUFFICIENT_SIZE = 7
_CAUSES_OF_RETIREMENT = (0, 1)
_CORE = 0

# The end of an instance's name: NVIDIA A100-SXM4-80GB MIG 1c.3g.40gb
_PROFILE = re.compile(r".*\bMIG ((?:\d+c\.)?\d+g\.\d+gb(?:[+-][a-z.]+)*)")


class PciInfo(ctypes.Structure):
    """The address of a GPU, as nvmlDeviceGetPciInfo_v3 writes it."""

    _fields_ = (
        ("legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("ids", ctypes.c_uint),
        ("subsystem", ctypes.c_uint),
        ("text", ctypes.c_char * 32),
    )


class Attributes(ctypes.Structure):
    """The size of an instance, as nvmlDeviceGetAttributes_v2 writes it."""

    _fields_ = (
        ("multiprocessors", ctypes.c_uint),
        ("engines", ctypes.c_uint * 5),  # copy, decoders, encoders, JPEG, optical flow
        ("gpu_slices", ctypes.c_uint),
        ("compute_slices", ctypes.c_uint),
        ("mebibytes", ctypes.c_ulonglong),
    )


class Memory(ctypes.Structure):
    """The sizes in bytes, as nvmlDeviceGetMemoryInfo writes them."""

    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class Utilization(ctypes.Structure):
    """The percentages of time, as nvmlDeviceGetUtilizationRates writes them."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class FieldValue(ctypes.Structure):
    """A fact that has a number, as nvmlDeviceGetFieldValues writes it."""

    _fields_ = (
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("type", ctypes.c_int),
        ("code", ctypes.c_int),
        ("value", ctypes.c_ulonglong),
    )


class FabricInfo(ctypes.Structure):
    """How a GPU has joined the fabric of NVSwitches, as nvmlDeviceGetGpuFabricInfo writes it."""

    _fields_ = (
        ("cluster", ctypes.c_ubyte * 16),
        ("status", ctypes.c_int),
        ("clique", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
    )


class CallFailed(Exception):
    """Raised if a function of the library returns an error or is missing."""

    def __init__(self, function: str, code: int | None) -> None:
        super().__init__(f"{function}: {'missing' if code is None else f'error {code}'}")
        self.code = code


class Library:
    """Calls the library's functions by their names."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)

    def call(self, function: str, *arguments: Any) -> None:
        """Calls a function. Raises CallFailed unless it returns success."""
        try:
            symbol = getattr(self._library, function)
        except AttributeError:
            raise CallFailed(function, None) from None
        code = symbol(*arguments)
        if code != 0:
            raise CallFailed(function, code)

    def number(self, function: str, handle: ctypes.c_void_p) -> int:
        """Returns the number that a function writes into its second argument."""
        value = ctypes.c_uint()
        self.call(function, handle, ctypes.byref(value))
        return value.value

    def text(self, function: str, handle: ctypes.c_void_p) -> str:
        """Returns the text that a function writes into its second argument."""
        room = ctypes.create_string_buffer(_NAME)
        self.call(function, handle, room, ctypes.c_uint(_NAME))
        return room.value.decode(errors="replace")


def answer(library: Library, what: str = "") -> list[dict[str, Any]]:
    """Describes or measures all GPUs that the library can describe.

    Raises CallFailed if it does not work at all.
    """
    library.call("nvmlInit_v2")
    count = ctypes.c_uint()
    library.call("nvmlDeviceGetCount_v2", ctypes.byref(count))

    gpus = []
    for index in range(min(count.value, _MOST_GPUS)):
        # A GPU that is lost must not hide the others.
        with contextlib.suppress(CallFailed):
            handle, address = _handle(library, index)
            if what == MEASURE:
                facts = _measurements(library, handle)
            else:
                facts = _gpu(library, handle, with_health=what == HEALTH)
            gpus.append({"address": address, **facts})
    return gpus


def cuda_version(library: Library) -> str:
    """Returns the newest CUDA version that the driver serves. Raises CallFailed without an answer."""
    version = ctypes.c_int()
    library.call("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(version))
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def _handle(library: Library, index: int) -> tuple[ctypes.c_void_p, str]:
    handle = ctypes.c_void_p()
    place = PciInfo()
    library.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
    library.call("nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(place))
    return handle, f"{place.domain:04x}:{place.bus:02x}:{place.device:02x}.0"


def _gpu(library: Library, handle: ctypes.c_void_p, *, with_health: bool) -> dict[str, Any]:
    mode, pending = ctypes.c_uint(), ctypes.c_uint()
    try:
        library.call("nvmlDeviceGetMigMode", handle, ctypes.byref(mode), ctypes.byref(pending))
    except CallFailed as error:
        if error.code != NOT_SUPPORTED:
            raise

    described = {
        "mig": mode.value == 1,
        "parts": _parts(library, handle, with_health) if mode.value == 1 else [],
    }
    if with_health:
        described["health"] = _health(library, handle)
    else:
        described |= _board(library, handle)
    return described


def _board(library: Library, handle: ctypes.c_void_p) -> dict[str, Any]:
    """Describes the board of a GPU. Facts whose function fails are left out."""
    board: dict[str, Any] = {}
    with contextlib.suppress(CallFailed):
        memory = Memory()
        library.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        board["memory"] = memory.total
    with contextlib.suppress(CallFailed):
        now, after_reboot = ctypes.c_uint(), ctypes.c_uint()
        library.call("nvmlDeviceGetEccMode", handle, ctypes.byref(now), ctypes.byref(after_reboot))
        board["ecc"] = now.value == 1
    with contextlib.suppress(CallFailed):
        milliwatts = library.number("nvmlDeviceGetPowerManagementLimit", handle)
        board["power_cap"] = milliwatts // 1000
    with contextlib.suppress(CallFailed):
        board["retired_pages"] = _retired_pages(library, handle)
    with contextlib.suppress(CallFailed):
        board["fabric"] = _fabric(library, handle)
    return board


def _retired_pages(library: Library, handle: ctypes.c_void_p) -> int:
    """Returns the rows of memory that spare rows replace; for GPUs before Ampere, pages."""
    with contextlib.suppress(CallFailed):
        counts = [ctypes.c_uint() for _ in range(4)]
        places = [ctypes.byref(count) for count in counts]
        library.call("nvmlDeviceGetRemappedRows", handle, *places)
        return counts[0].value + counts[1].value

    pages = 0
    for cause in _CAUSES_OF_RETIREMENT:
        count = ctypes.c_uint()
        try:
            library.call(
                "nvmlDeviceGetRetiredPages", handle, ctypes.c_uint(cause), ctypes.byref(count), None
            )
        except CallFailed as error:
            # There is no room for the addresses of the pages, but the number is there.
            if error.code != _INSUFFICIENT_SIZE:
                raise
        pages += count.value
    return pages


def _fabric(library: Library, handle: ctypes.c_void_p) -> dict[str, Any]:
    fabric = FabricInfo()
    library.call("nvmlDeviceGetGpuFabricInfo", handle, ctypes.byref(fabric))
    return {
        "state": fabric.state,
        "status": fabric.status,
        "cluster": bytes(fabric.cluster).hex(),
        "clique": fabric.clique,
    }


def _measurements(library: Library, handle: ctypes.c_void_p) -> dict[str, Any]:
    """Measures a GPU. What cannot be measured is left out, as the load of a GPU with MIG on."""
    measured: dict[str, Any] = {}
    with contextlib.suppress(CallFailed):
        load = Utilization()
        library.call("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(load))
        measured["busy"] = load.gpu
    with contextlib.suppress(CallFailed):
        memory = Memory()
        library.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        measured["memory_used"] = memory.used
    with contextlib.suppress(CallFailed):
        measured["milliwatts"] = library.number("nvmlDeviceGetPowerUsage", handle)
    with contextlib.suppress(CallFailed):
        degrees = ctypes.c_uint()
        library.call("nvmlDeviceGetTemperature", handle, _CORE, ctypes.byref(degrees))
        measured["degrees"] = degrees.value
    return measured


def _parts(library: Library, handle: ctypes.c_void_p, with_health: bool) -> list[dict[str, Any]]:
    most = library.number("nvmlDeviceGetMaxMigDeviceCount", handle)
    parts = []
    for index in range(min(most, _MOST_PARTS)):
        part = ctypes.c_void_p()
        place = ctypes.c_uint(index)

        # Most places are empty, and the library cannot describe an instance that is being created.
        with contextlib.suppress(CallFailed):
            library.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, place, ctypes.byref(part))
            described = _part(library, part)
            if with_health:
                described["health"] = _health(library, part)
            parts.append(described)
    return parts


def _part(library: Library, part: ctypes.c_void_p) -> dict[str, Any]:
    """Describes an instance.

    Facts whose function fails are left out; an older library may lack one.
    """
    described: dict[str, Any] = {
        "gpu_instance": library.number("nvmlDeviceGetGpuInstanceId", part),
        "compute_instance": library.number("nvmlDeviceGetComputeInstanceId", part),
    }
    with contextlib.suppress(CallFailed):
        described["uuid"] = library.text("nvmlDeviceGetUUID", part)
    with contextlib.suppress(CallFailed):
        match = _PROFILE.fullmatch(library.text("nvmlDeviceGetName", part))
        if match is not None:
            described["profile"] = match[1]
    with contextlib.suppress(CallFailed):
        attributes = Attributes()
        library.call("nvmlDeviceGetAttributes_v2", part, ctypes.byref(attributes))
        described["multiprocessors"] = attributes.multiprocessors
        described["engines"] = list(attributes.engines)
        described["memory"] = attributes.mebibytes << 20
    return described


def _health(library: Library, device: ctypes.c_void_p) -> dict[str, Any]:
    """Describes the health of a GPU or an instance. Facts whose function fails are left out."""
    told: dict[str, Any] = {}
    with contextlib.suppress(CallFailed):
        pending, failed = ctypes.c_uint(), ctypes.c_uint()
        counts = [ctypes.byref(ctypes.c_uint()) for _ in range(2)]
        places = (*counts, ctypes.byref(pending), ctypes.byref(failed))
        library.call("nvmlDeviceGetRemappedRows", device, *places)
        told |= {"remap_pending": pending.value != 0, "remap_failed": failed.value != 0}
    with contextlib.suppress(CallFailed):
        count = ctypes.c_ulonglong()
        kind, since = ctypes.c_uint(_UNCORRECTED), ctypes.c_uint(_VOLATILE)
        library.call("nvmlDeviceGetTotalEccErrors", device, kind, since, ctypes.byref(count))
        told["uncorrected"] = count.value
    with contextlib.suppress(CallFailed):
        field = FieldValue(field=_RECOVERY_ACTION)
        library.call("nvmlDeviceGetFieldValues", device, ctypes.c_int(1), ctypes.byref(field))
        if field.code == 0:
            told["recovery"] = field.value & 0xFFFFFFFF
    with contextlib.suppress(CallFailed):
        fabric = FabricInfo()
        library.call("nvmlDeviceGetGpuFabricInfo", device, ctypes.byref(fabric))
        told |= {"fabric": fabric.state, "fabric_status": fabric.status}
    return told


def _limit_harm() -> int:
    """Limits what a crash of the library can do. Returns a descriptor for the document.

    The library's own output is discarded, and no core file is written. If memory is short, the
    kernel kills this process first.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_OUTPUT, _MOST_OUTPUT))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")

    out = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    return out


def main(path: str, *topics: str) -> None:
    out = _limit_harm()
    try:
        library = Library(path)
        what = "".join(topics)
        document: dict[str, Any] = {"gpus": answer(library, what)}
        with contextlib.suppress(CallFailed):
            if not what:
                document["cuda"] = cuda_version(library)
    except (CallFailed, OSError) as error:
        document = {"error": str(error)}
    os.write(out, json.dumps(document).encode())

    # The library's own clean-up at the end of the process could hang or crash as well.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
