"""What a GPU's sensors say now: temperature, power, load, memory in use.

Read when somebody asks, of GPUs that are awake: a look must not wake one. What its driver does not
tell stays out. NVIDIA's tells nothing by files, which is what dcgm-exporter is for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from . import deadline, symptoms
from .gpu import Gpu, Roots

_MICRO = 1_000_000


class Reading(NamedTuple):
    """One figure, in SI units. `sensor` tells those apart of which a GPU has several."""

    kind: str  # temperature, power, energy, busy, memory used
    value: float
    sensor: str = ""


def readings(roots: Roots, gpus: Iterable[Gpu]) -> dict[str, tuple[Reading, ...]]:
    """By the GPU's name; parts have none of their own.

    A GPU that hangs costs two seconds once, and has none from then on.
    """
    addresses = {gpu.name: gpu.address for gpu in gpus if gpu.parent is None}

    def read_all() -> dict[str, tuple[Reading, ...]]:
        return {name: read_gpu(roots, address) for name, address in addresses.items()}

    return deadline.run(read_all)


def read_gpu(roots: Roots, address: str) -> tuple[Reading, ...]:
    """Of one GPU, never raising for what is wrong with it."""
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

        # The average is steadier; newer chips have the other alone.
        for name in ("power1_average", "power1_input"):
            microwatts = files.number(f"{folder}/{name}") if name in names else None
            if microwatts is not None:
                yield Reading("power", microwatts / _MICRO)
                break

        # xe and i915 count energy, and leave it to the reader to divide by time.
        microjoules = files.number(f"{folder}/energy1_input") if "energy1_input" in names else None
        if microjoules is not None:
            yield Reading("energy", microjoules / _MICRO)
