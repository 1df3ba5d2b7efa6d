"""Reads from NVIDIA's own library (NVML) what the kernel's files do not show about a GPU's health.

These are rows of memory that are to be remapped, errors that could not be corrected, what the GPU
needs in the driver's own judgement, and whether it has joined the fabric of NVSwitches. This is off
unless the setting `nvml` is on. `nvml` runs the process that asks the library.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from . import mig, nvml, symptoms
from .gpu import Gpu, Roots, name_of
from .health import DEGRADED, FAILED, NVML, Symptom

# Seconds between two questions, and the most for an answer.
EVERY = 60.0
SECONDS = 10.0

# What a GPU needs, as the driver numbers it. Newer drivers may have more names, which are failed.
_NO_RECOVERY = 0
_RECOVERIES = {
    1: (FAILED, "reset the GPU"),
    2: (FAILED, "reboot the node"),
    3: (DEGRADED, "end the programs that access it from other GPUs"),
    4: (FAILED, "drain the GPU and reset it"),
    5: (DEGRADED, "recover its IMEX domain"),
}

# The state in which a GPU has joined the fabric. States below 1 mean that it needs no fabric.
_NO_FABRIC, _FABRIC_COMPLETED = 0, 3


class Reader:
    """Adds the library's symptoms to those of the kernel's files. For one caller at a time.

    Most calls do not wait for the library: another process asks it, and a later call takes the
    answer. An answer holds until there is a new one. A GPU that sleeps is not asked about,
    because the driver would wake it.
    """

    def __init__(
        self,
        roots: Roots,
        *,
        waits: bool = False,
        every: float = EVERY,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`waits` is for commands, which look only once."""
        self._roots, self._waits = roots, waits
        self._every, self._seconds, self._clock = every, seconds, clock
        self._question: nvml.Question | None = None
        self._asked_at = 0.0
        self._next_at = 0.0
        self._by_name: dict[str, tuple[Symptom, ...]] = {}

    def read_gpus(self, roots: Roots, gpus: Iterable[Gpu]) -> dict[str, tuple[Symptom, ...]]:
        """Returns the symptoms of each GPU, by its name, as `symptoms.read_gpus` does."""
        gpus = tuple(gpus)
        shown = symptoms.read_gpus(roots, gpus)
        self._ask([gpu for gpu in gpus if gpu.vendor == "nvidia" and gpu.driver == "nvidia"])

        found = {}
        for gpu in gpus:
            own = self._by_name.get(gpu.name)
            if own is None:
                own = self._by_name.get(gpu.parent or "", ())
            found[gpu.name] = (*shown.get(gpu.name, ()), *own)
        return found

    def _ask(self, gpus: list[Gpu]) -> None:
        """Takes the answer of the last question, or asks a new one if it is time."""
        now = self._clock()
        if self._question is None and now >= self._next_at and gpus:
            path = nvml.find_library(self._roots, gpus[0].driver_version)
            if path is None or self._any_sleeps(gpus):
                return
            self._next_at = now + self._every
            try:
                self._question = nvml.Question(path, "health")
            except OSError:
                return
            self._asked_at = now
        if self._question is None:
            return

        try:
            left = self._seconds - (now - self._asked_at)
            output = self._question.output(max(left, 0.0) if self._waits else 0.0)
        except OSError:
            output = b""
        if output is None and now - self._asked_at < self._seconds and not self._waits:
            return

        # A process that cannot be ended stays the question, so that no second one is started.
        if output is None and not self._question.end():
            return
        self._question.close()
        self._question = None
        if output:
            self._by_name = _parse(output) or self._by_name

    def _any_sleeps(self, gpus: list[Gpu]) -> bool:
        folder = f"{self._roots.sys}/bus/pci/devices"
        return any(symptoms.is_asleep(symptoms.Files(f"{folder}/{gpu.address}")) for gpu in gpus)


def _parse(output: bytes) -> dict[str, tuple[Symptom, ...]]:
    """Returns the symptoms in the helper's document by the names of devices; empty if it has none."""
    import json

    found: dict[str, tuple[Symptom, ...]] = {}
    try:
        for gpu in json.loads(output)["gpus"]:
            whole = _symptoms(gpu["health"])
            name = name_of(str(gpu["address"]))
            found[name] = whole

            # An instance has the symptoms of its GPU. If it counts its own errors, only these
            # are its errors.
            for part in gpu["parts"]:
                own = _symptoms(part["health"])
                inherited = [one for one in whole if one.kind != "ecc" or not own]
                part_name = mig.part_name(
                    str(gpu["address"]), part["gpu_instance"], part["compute_instance"]
                )
                found[part_name] = (*inherited, *own)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
    return found


def _symptoms(told: dict[str, Any]) -> tuple[Symptom, ...]:
    found = []
    if told.get("remap_failed"):
        sentence = "a bad row of its memory could not be remapped: replace the GPU"
        found.append(_symptom("row-remap", FAILED, sentence))
    elif told.get("remap_pending"):
        sentence = "a bad row of its memory is to be remapped: reset the GPU when it is free"
        found.append(_symptom("row-remap", DEGRADED, sentence))

    if isinstance(told.get("uncorrected"), int):
        sentence = "its memory had errors that could not be corrected (ECC)"
        found.append(_symptom("ecc", DEGRADED, sentence, count=told["uncorrected"]))

    action = told.get("recovery", _NO_RECOVERY)
    if isinstance(action, int) and action != _NO_RECOVERY:
        severity, advice = _RECOVERIES.get(action, (FAILED, f"recovery action {action}"))
        sentence = f"the NVIDIA driver says what the GPU needs: {advice}"
        found.append(_symptom("recovery", severity, sentence, value=str(action)))

    found += _fabric_symptoms(told.get("fabric", _NO_FABRIC), told.get("fabric_status", 0))
    return tuple(found)


def _fabric_symptoms(state: Any, status: Any) -> list[Symptom]:
    if state == _FABRIC_COMPLETED and status:
        sentence = f"the GPU could not join the fabric of NVSwitches (error {status})"
    elif state in (1, 2):
        sentence = (
            "the GPU has not joined the fabric of NVSwitches yet, so that CUDA does not start: "
            "look whether the Fabric Manager runs"
        )
    else:
        return []
    return [_symptom("fabric", FAILED, sentence)]


def _symptom(
    kind: str, severity: str, sentence: str, *, value: str = "", count: int | None = None
) -> Symptom:
    return Symptom(
        kind=kind, severity=severity, sentence=sentence, value=value, count=count, source=NVML
    )
