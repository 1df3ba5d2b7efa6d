"""What NVIDIA's own library tells of MIG and the kernel does not, asked by another process.

The library is a file of the host's driver. `nvml_helper` loads it, and may crash or hang without
harm: then everything is as without it. Off unless the setting `nvml` is on.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from . import libraries, mig, values
from .gpu import DIVIDED, Gpu, Inventory, Roots

SECONDS = 10.0  # that an answer may take; the driver may have to wake a GPU up first

# How long an answer stands. Other instances make it stale at once; but MIG can be turned on without
# one, and an instance made again may have the numbers of another that is gone.
FRESH = 600.0
# And one that leaves something out, as of an instance that was just being made.
SOON = 60.0

_HELPER = Path(__file__).with_name("nvml_helper.py")
_LIBRARY = "/libnvidia-ml.so.1"

# What a document of another form leads to, one that is nested without end among them.
_NOT_UNDERSTOOD = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
_MOST_OUTPUT = 1 << 20
_UUID = re.compile(r"MIG-[0-9a-zA-Z/-]{1,60}")
_PROFILE = re.compile(r"(?:\d{1,2}c\.)?\d{1,2}g\.\d{1,4}gb(?:[+-][a-z.]{1,16}){0,4}")

_ON_WITHOUT_INSTANCE = (
    "MIG is on and there is no instance, so that nothing can compute on it: make instances, or turn"
    " MIG off"
)


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What the library knows of an instance; None where it does not tell."""

    uuid: str | None = None
    profile: str | None = None
    memory: int | None = None
    multiprocessors: int | None = None


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What it knows of the machine, or why it could not be asked."""

    described: frozenset[str] = frozenset()  # addresses of the GPUs that it tells of
    divided: frozenset[str] = frozenset()  # of those, the ones with MIG on
    parts: dict[str, Part] = field(default_factory=dict)  # by the names of their devices
    trouble: str = ""

    def covers(self, gpus: Iterable[Gpu]) -> bool:
        """Whether it tells of each of these GPUs and parts."""
        return all(
            gpu.name in self.parts if gpu.parent else gpu.address in self.described for gpu in gpus
        )

    def about(self, gpus: Iterable[Gpu]) -> Answer:
        """What of it is about these GPUs and parts."""
        addresses = {gpu.address for gpu in gpus if not gpu.parent}
        names = {gpu.name for gpu in gpus if gpu.parent}
        return replace(
            self,
            described=self.described & addresses,
            divided=self.divided & addresses,
            parts={name: part for name, part in self.parts.items() if name in names},
        )

    def with_older(self, older: Answer) -> Answer:
        """With what an older answer has where this one tells nothing."""
        return replace(
            self,
            described=self.described | older.described,
            divided=self.divided | (older.divided - self.described),
            parts=older.parts | self.parts,
        )


class Library:
    """The library, asked again when there are other instances than before, and now and then.

    What it said of a GPU or an instance stands until it says something else of it: that it cannot be
    asked for a while does not make a divided GPU a whole one. One caller at a time.
    """

    def __init__(
        self,
        roots: Roots,
        *,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._roots = roots
        self._seconds = seconds
        self._clock = clock
        self._answer = Answer()
        self._asked: tuple[Gpu, ...] = ()
        self._stale_at = 0.0
        self._hung: subprocess.Popen[bytes] | None = None

    def complete(self, inventory: Inventory) -> Inventory:
        """The inventory with what the library knows of MIG; as it is where there is nothing to ask.

        Takes as long as the library does, at most `seconds`, and a moment if nothing has changed.
        """
        asked = [gpu for gpu in inventory.gpus if mig.may_divide(gpu)]
        if not asked:
            return inventory

        # The kernel's files tell which instances there are: others are a reason to ask at once.
        is_other = {_key(gpu) for gpu in asked} != {_key(gpu) for gpu in self._asked}
        if is_other or self._clock() >= self._stale_at:
            self._renew(asked)

        parents = {gpu.parent for gpu in asked}
        gpus = [_complete_gpu(gpu, self._answer, parents) for gpu in inventory.gpus]
        return replace(inventory, gpus=tuple(gpus))

    def _renew(self, asked: list[Gpu]) -> None:
        """Asks, and keeps of the last answer what the new one does not tell."""
        answer = self._ask(asked[0].driver_version)

        keys = {_key(gpu) for gpu in self._asked}
        unchanged = [gpu for gpu in asked if _key(gpu) in keys]
        self._answer = answer.with_older(self._answer.about(unchanged))
        self._asked = tuple(asked)

        is_whole = bool(answer.trouble) or answer.covers(asked)
        self._stale_at = self._clock() + (FRESH if is_whole else SOON)

    def _ask(self, version: str | None) -> Answer:
        path = self._library(version)
        if path is None:
            return Answer(trouble="the host's driver has no libnvidia-ml.so.1 that claimd can see")
        if self._hung is not None and self._hung.poll() is None:
            return Answer(trouble="it hangs, and the process that asked it cannot be ended")
        try:
            return _parse_answer(self._output_of_helper(path))
        except (OSError, *_NOT_UNDERSTOOD) as error:
            return Answer(trouble=f"{path}: {error}")

    def _library(self, version: str | None) -> str | None:
        """Its path as we see it."""
        driver = libraries.look(self._roots, version).driver
        for mount in driver.mounts if driver else ():
            if mount.target.endswith(_LIBRARY):
                return f"{self._roots.host}{mount.source}"
        return None

    def _output_of_helper(self, path: str) -> bytes:
        """What the helper prints. OSError with the reason if it does not end well, or in time."""
        command = [sys.executable, "-I", "-S", "-B", str(_HELPER), path]

        # A file, not a pipe: nobody has to read while it runs, and a process that cannot be ended
        # keeps nobody waiting.
        output = os.memfd_create("nvml", os.MFD_CLOEXEC)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                env={},
                start_new_session=True,
            )
            try:
                code = process.wait(self._seconds)
            except subprocess.TimeoutExpired:
                self._end(process)
                raise OSError(f"no answer within {self._seconds:g} s") from None
            if code != 0:
                raise OSError(f"the process that asked it ended with {code}")
            return os.pread(output, _MOST_OUTPUT, 0)
        finally:
            os.close(output)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Ends it, or remembers it: a process that waits in the driver may not end at all."""
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
            return
        self._hung = process


def _parse_answer(output: bytes) -> Answer:
    """The helper's document. One of _NOT_UNDERSTOOD for any other."""
    import json  # only where MIG is asked about: it would cost every start a millisecond

    document = json.loads(output)
    if "error" in document:
        return Answer(trouble=str(document["error"])[:200])

    described = set()
    divided = set()
    parts = {}
    for gpu in document["gpus"]:
        address = str(gpu["address"])
        described.add(address)
        if gpu["mig"] is True:
            divided.add(address)
        parts.update(_parts(address, gpu["parts"]))
    return Answer(described=frozenset(described), divided=frozenset(divided), parts=parts)


def _key(gpu: Gpu) -> tuple[str, str | None]:
    return gpu.name, gpu.driver_version


def _parts(address: str, described: list[dict[str, Any]]) -> dict[str, Part]:
    """The instances of one GPU, by the names of their devices."""
    sharers = Counter(part["gpu_instance"] for part in described)
    parts = {}
    for part in described:
        gpu_instance = part["gpu_instance"]
        name = mig.part_name(address, gpu_instance, part["compute_instance"])

        # Several in one GPU instance have its memory in common: none of them has an own amount.
        is_alone = sharers[gpu_instance] == 1
        parts[name] = Part(
            uuid=_text(part.get("uuid"), _UUID),
            profile=_text(part.get("profile"), _PROFILE),
            memory=_amount(part.get("memory")) if is_alone else None,
            multiprocessors=_amount(part.get("multiprocessors")),
        )
    return parts


def _text(value: Any, form: re.Pattern[str]) -> str | None:
    is_fit = isinstance(value, str) and form.fullmatch(value)
    return value if is_fit else None


def _amount(value: Any) -> int | None:
    is_fit = isinstance(value, int) and 0 < value < 1 << 60
    return value if is_fit else None


def _complete_gpu(gpu: Gpu, answer: Answer, parents: set[str | None]) -> Gpu:
    """The GPU or part with what the answer adds to it."""
    part = answer.parts.get(gpu.name)
    if part is not None and gpu.kind == "partition":
        return replace(
            gpu,
            uuid=part.uuid or gpu.uuid,
            profile=part.profile or gpu.profile,
            memory=part.memory or gpu.memory,
            compute_units=part.multiprocessors,
        )

    if not mig.may_divide(gpu) or gpu.parent is not None:
        return gpu
    if answer.trouble:
        note = f"MIG: NVIDIA's library cannot be asked: {answer.trouble}"
        gpu = replace(gpu, notes=(*gpu.notes, note))
    if gpu.address in answer.divided and gpu.name not in parents:
        notes = (*gpu.notes, _ON_WITHOUT_INSTANCE)
        gpu = replace(gpu, kind=DIVIDED, memory=None, notes=notes)
    return gpu
