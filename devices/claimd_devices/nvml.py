"""Adds what NVIDIA's own library (NVML) knows about MIG and the kernel does not show.

The library is a file of the host's driver. `nvml_helper`, a separate process, loads it. If that
process crashes or hangs, the inventory has no such facts, and nothing else happens. This is off
unless the setting `nvml` is on.
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

SECONDS = 10.0  # the most for an answer; the driver may first wake a GPU up

# Seconds until an answer is stale. A change of the instances makes it stale at once, but MIG can be
# turned on without an instance, and a new instance may have the numbers of an old one.
FRESH = 600.0

# The same for an answer that lacks something, for example an instance that was just being created.
SOON = 60.0

_HELPER = Path(__file__).with_name("nvml_helper.py")
_LIBRARY = "/libnvidia-ml.so.1"

# The exceptions for a document of another form, including one that is nested too deeply.
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
    """The library's facts about an instance; None if the library does not have one."""

    uuid: str | None = None
    profile: str | None = None
    memory: int | None = None
    multiprocessors: int | None = None


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of the library about the whole machine, or the reason for its absence."""

    # The addresses of the GPUs in the answer.
    described: frozenset[str] = frozenset()

    # The addresses of those with MIG on.
    divided: frozenset[str] = frozenset()

    # Instances by the names of their devices.
    parts: dict[str, Part] = field(default_factory=dict)

    trouble: str = ""

    def covers(self, gpus: Iterable[Gpu]) -> bool:
        """Returns True if each of these GPUs and parts is in the answer."""
        return all(
            gpu.name in self.parts if gpu.parent else gpu.address in self.described for gpu in gpus
        )

    def about(self, gpus: Iterable[Gpu]) -> Answer:
        """Returns the answer without everything about other GPUs and parts."""
        addresses = {gpu.address for gpu in gpus if not gpu.parent}
        names = {gpu.name for gpu in gpus if gpu.parent}
        return replace(
            self,
            described=self.described & addresses,
            divided=self.divided & addresses,
            parts={name: part for name, part in self.parts.items() if name in names},
        )

    def with_older(self, older: Answer) -> Answer:
        """Returns the answer, completed with facts of an older one that this one does not have."""
        return replace(
            self,
            described=self.described | older.described,
            divided=self.divided | (older.divided - self.described),
            parts=older.parts | self.parts,
        )


class Library:
    """The library. It is asked again when the instances change, and from time to time.

    Its facts about a GPU or an instance stay valid until a newer answer has other ones. So a
    divided GPU does not become a whole one while the library cannot be asked. For one caller at a
    time.
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
        self._hung: Question | None = None

    def complete(self, inventory: Inventory) -> Inventory:
        """Returns the inventory with the library's facts about MIG; unchanged if no GPU has MIG.

        Waits for the library, at most `seconds`. Does not ask it if nothing has changed.
        """
        asked = [gpu for gpu in inventory.gpus if mig.may_divide(gpu)]
        if not asked:
            return inventory

        # The kernel's files show which instances exist. If these changed, the answer is stale.
        is_other = {_key(gpu) for gpu in asked} != {_key(gpu) for gpu in self._asked}
        if is_other or self._clock() >= self._stale_at:
            self._renew(asked)

        parents = {gpu.parent for gpu in asked}
        gpus = [_complete_gpu(gpu, self._answer, parents) for gpu in inventory.gpus]
        return replace(inventory, gpus=tuple(gpus))

    def _renew(self, asked: list[Gpu]) -> None:
        """Asks the library, and keeps facts of the last answer that the new one does not have."""
        answer = self._ask(asked[0].driver_version)

        keys = {_key(gpu) for gpu in self._asked}
        unchanged = [gpu for gpu in asked if _key(gpu) in keys]
        self._answer = answer.with_older(self._answer.about(unchanged))
        self._asked = tuple(asked)

        is_whole = bool(answer.trouble) or answer.covers(asked)
        self._stale_at = self._clock() + (FRESH if is_whole else SOON)

    def _ask(self, version: str | None) -> Answer:
        """Asks the library in another process. Any failure becomes the answer's `trouble`."""
        path = find_library(self._roots, version)
        if path is None:
            return Answer(trouble="the host's driver has no libnvidia-ml.so.1 that claimd can see")
        if self._hung is not None and self._hung.runs:
            return Answer(trouble="it hangs, and the process that asked it cannot be ended")
        try:
            return _parse_answer(self._output_of_helper(path))
        except (OSError, *_NOT_UNDERSTOOD) as error:
            # OSError: the helper ended badly or late, or claimd could not start it (EMFILE, ENOMEM,
            # EAGAIN). The facts of the last answer stay in both cases.
            return Answer(trouble=f"{path}: {error}")

    def _output_of_helper(self, path: str) -> bytes:
        """Returns the output of the helper. Raises OSError if it fails, or does not end in time."""
        question = Question(path)
        try:
            output = question.output(self._seconds)
            if output is None:
                if not question.end():
                    self._hung = question
                raise OSError(f"no answer within {self._seconds:g} s")
            return output
        finally:
            question.close()


def find_library(roots: Roots, version: str | None) -> str | None:
    """Returns the path of the library as we see it; None if the driver does not have it."""
    driver = libraries.look(roots, version).driver
    for mount in driver.mounts if driver else ():
        if mount.target.endswith(_LIBRARY):
            return f"{roots.host}{mount.source}"
    return None


class Question:
    """A process that asks the library. The constructor starts it. Raises OSError if it cannot."""

    def __init__(self, path: str, *topics: str) -> None:
        command = [sys.executable, "-I", "-S", "-B", str(_HELPER), path, *topics]

        # The output goes to a file. We would have to read a pipe while the process runs, and a
        # process that cannot be ended would keep it open.
        self._output = os.memfd_create("nvml", os.MFD_CLOEXEC)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.DEVNULL,
                env={},
                start_new_session=True,
            )
        except OSError:
            self.close()
            raise

    @property
    def runs(self) -> bool:
        """True if the process has not ended."""
        return self._process.poll() is None

    def output(self, seconds: float) -> bytes | None:
        """Returns what the process has written; None if it does not end within `seconds`.

        Raises OSError if it ended badly.
        """
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        if code != 0:
            raise OSError(f"the process that asked it ended with {code}")
        return os.pread(self._output, _MOST_OUTPUT, 0)

    def end(self) -> bool:
        """Kills the process. Returns False if it hangs in the driver and does not end."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        return not self.runs

    def close(self) -> None:
        """Forgets the output. May be repeated."""
        if self._output >= 0:
            os.close(self._output)
            self._output = -1


def _parse_answer(output: bytes) -> Answer:
    """Parses the helper's document. Raises one of _NOT_UNDERSTOOD for another form."""
    # Imported late, because the import costs a millisecond and few nodes have MIG.
    import json

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
    """Returns what makes the library's facts about a GPU or part stale when it changes."""
    return gpu.name, gpu.driver_version


def _parts(address: str, described: list[dict[str, Any]]) -> dict[str, Part]:
    """Returns the instances of one GPU, by the names of their devices."""
    sharers = Counter(part["gpu_instance"] for part in described)
    parts = {}
    for part in described:
        gpu_instance = part["gpu_instance"]
        name = mig.part_name(address, gpu_instance, part["compute_instance"])

        # Several compute instances in one GPU instance share its memory; none has its own amount.
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
    """Returns the GPU or part with the facts that the answer adds."""
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
