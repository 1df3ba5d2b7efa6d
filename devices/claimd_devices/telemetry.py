"""Reads the sensors of GPUs: temperature, power, load, memory in use.

The sensors are read only on request, and only of GPUs that are awake, because a read must not wake
a GPU. Values that a driver does not show are left out. NVIDIA's driver shows none in files; its
library does, which `nvml` asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from . import deadline, symptoms
from .gpu import Gpu, Roots

if TYPE_CHECKING:
    from . import nvml

_MICRO = 1_000_000


class Reading(NamedTuple):
    """One measured value, in SI units. `sensor` distinguishes several values of one kind."""

    kind: str  # temperature, power, energy, busy, memory used
    value: float
    sensor: str = ""


def readings(roots: Roots, gpus: Iterable[Gpu]) -> dict[str, tuple[Reading, ...]]:
    """Returns the readings of each GPU, by its name. Parts have no readings of their own.

    A GPU that hangs delays the result by two seconds, once, and has no readings from then on.
    """
    addresses = {gpu.name: gpu.address for gpu in gpus if gpu.parent is None}

    def read_all() -> dict[str, tuple[Reading, ...]]:
        return {name: read_gpu(roots, address) for name, address in addresses.items()}

    return deadline.run(read_all)


def nvidia_readings(
    gpus: Iterable[Gpu], measured: Mapping[str, nvml.Measured]
) -> dict[str, tuple[Reading, ...]]:
    """Returns the readings of NVIDIA's GPUs, by name, from what the library measured by address."""
    found = {}
    for gpu in gpus:
        values = measured.get(gpu.address)
        if gpu.parent is None and values is not None:
            found[gpu.name] = tuple(_readings_of(values))
    return found


def _readings_of(values: nvml.Measured) -> Iterator[Reading]:
    if values.degrees is not None:
        yield Reading("temperature", values.degrees, "core")
    if values.milliwatts is not None:
        yield Reading("power", values.milliwatts / 1000)
    if values.busy is not None:
        yield Reading("busy", values.busy / 100)
    if values.memory_used is not None:
        yield Reading("memory used", values.memory_used)


def read_gpu(roots: Roots, address: str) -> tuple[Reading, ...]:
    """Returns the readings of one GPU. Faults of the GPU do not make it raise."""
    folder = f"{roots.sys}/bus/pci/devices/{address}"
    if deadline.is_hung(folder):
        return ()
    files = symptoms.Files(folder)
    if symptoms.is_asleep(files):
        return ()

    found = [*_sensor_readings(files)]
    busy = files.number("gpu_busy_percent")
    if busy is not None:
        found.append(Reading("busy", min(max(busy, 0), 100) / 100))
    used = files.number("mem_info_vram_used")
    if used is not None:
        found.append(Reading("memory used", used))
    return tuple(found)


def _sensor_readings(files: symptoms.Files) -> Iterable[Reading]:
    """Yields the readings of the sensors in hwmon."""
    for monitor in files.names("hwmon"):
        folder = f"hwmon/{monitor}"
        names = set(files.names(folder))
        for name in sorted(names):
            if symptoms.SENSOR.fullmatch(name):
                millidegrees = files.number(f"{folder}/{name}")
                if millidegrees is not None:
                    stem = name.removesuffix("_input")
                    label = files.text(f"{folder}/{stem}_label") if f"{stem}_label" in names else ""
                    yield Reading("temperature", millidegrees / 1000, label or stem)

        # The average is steadier. Newer chips have only the other file.
        for name in ("power1_average", "power1_input"):
            microwatts = files.number(f"{folder}/{name}") if name in names else None
            if microwatts is not None:
                yield Reading("power", microwatts / _MICRO)
                break

        # xe and i915 show a counter of energy instead of power.
        microjoules = files.number(f"{folder}/energy1_input") if "energy1_input" in names else None
        if microjoules is not None:
            yield Reading("energy", microjoules / _MICRO)
