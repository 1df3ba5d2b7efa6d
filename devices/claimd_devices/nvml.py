"""Adds what NVIDIA's own library (NVML) knows and the kernel does not show.

These are the facts about MIG, the size and the state of the memory, the place in an NVLink fabric,
and the load. The library is a file of the host's driver. `nvml_helper`, a separate process, loads
it. If that process crashes or hangs, the inventory has no such facts, and nothing else happens.
This is off unless the setting `nvml` is on. A sleeping GPU is not woken for it: the library opens
all GPUs, so while one of them sleeps, none is asked about.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from . import libraries, mig, values
from .gpu import DIVIDED, Engines, Fabric, Gpu, Inventory, Roots, Setup

SECONDS = 10.0  # the most for an answer; the driver may first wake a GPU up

# Seconds until an answer is stale. A change of the instances makes it stale at once, but MIG can be
# turned on without an instance, and a new instance may have the numbers of an old one.
FRESH = 600.0

# The same for an answer that lacks something, for example an instance that was just being created.
SOON = 60.0

# Seconds between two measurements. Each starts a process.
MEASURE_AGAIN = 15.0

_HELPER = Path(__file__).with_name("nvml_helper.py")
_LIBRARY = "/libnvidia-ml.so.1"

# The exceptions for a document of another form, including one that is nested too deeply.
_NOT_UNDERSTOOD = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
_MOST_OUTPUT = 1 << 20
_UUID = re.compile(r"MIG-[0-9a-zA-Z/-]{1,60}")
_PROFILE = re.compile(r"(?:\d{1,2}c\.)?\d{1,2}g\.\d{1,4}gb(?:[+-][a-z.]{1,16}){0,4}")

_CUDA = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")
_CLUSTER = re.compile(r"([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})")
_FABRIC_STATES = {1: "not-started", 2: "in-progress", 3: "completed"}
_COMPLETED, _FAILED = 3, "failed"

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
    engines: Engines | None = None


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The library's facts about a whole GPU; None if the library does not have one."""

    memory: int | None = None
    ecc: bool | None = None
    power_cap: int | None = None
    retired_pages: int | None = None
    fabric: Fabric | None = None


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of the library about the whole machine, or the reason for its absence."""

    # The addresses of the GPUs in the answer.
    described: frozenset[str] = frozenset()

    # The addresses of those with MIG on.
    divided: frozenset[str] = frozenset()

    # Instances by the names of their devices.
    parts: dict[str, Part] = field(default_factory=dict)

    # Whole GPUs by their addresses.
    boards: dict[str, Board] = field(default_factory=dict)

    cuda: str | None = None  # the newest CUDA version that the driver serves
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
            boards={
                address: board for address, board in self.boards.items() if address in addresses
            },
        )

    def with_older(self, older: Answer) -> Answer:
        """Returns the answer, completed with facts of an older one that this one does not have."""
        return replace(
            self,
            described=self.described | older.described,
            divided=self.divided | (older.divided - self.described),
            parts=older.parts | self.parts,
            boards=older.boards | self.boards,
            cuda=self.cuda or older.cuda,
        )


class Helper:
    """Asks the library, in another process. For one caller at a time."""

    def __init__(self, roots: Roots, seconds: float = SECONDS) -> None:
        self._roots = roots
        self._seconds = seconds
        self._hung: Question | None = None

    def ask(self, version: str | None, *topics: str) -> dict[str, Any]:
        """Returns the helper's document about the GPUs of a driver of this version.

        Raises OSError if the library is not there, or the helper ended badly or late, or could not
        be started (EMFILE, ENOMEM, EAGAIN). Raises one of _NOT_UNDERSTOOD for other output.
        """
        # Imported late, because the import costs a millisecond.
        import json

        path = find_library(self._roots, version)
        if path is None:
            raise OSError("the host's driver has no libnvidia-ml.so.1 that claimd can see")
        if self._hung is not None and self._hung.runs:
            raise OSError("it hangs, and the process that asked it cannot be ended")
        try:
            output = self._output(path, topics)
        except OSError as error:
            raise OSError(f"{path}: {error}") from error
        document: dict[str, Any] = json.loads(output)
        if "error" in document:
            raise OSError(f"{path}: {str(document['error'])[:200]}")
        return document

    def _output(self, path: str, topics: tuple[str, ...]) -> bytes:
        """Returns the output of the helper. Raises OSError if it fails, or does not end in time."""
        question = Question(path, *topics)
        try:
            output = question.output(self._seconds)
            if output is None:
                if not question.end():
                    self._hung = question
                raise OSError(f"no answer within {self._seconds:g} s")
            return output
        finally:
            question.close()


class _Asker:
    """Asks the library again when its answer is stale."""

    def __init__(
        self,
        roots: Roots,
        *,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Takes the most seconds for an answer."""
        self._helper = Helper(roots, seconds)
        self._clock = clock
        self._stale_at = 0.0

    def _is_stale(self) -> bool:
        return self._clock() >= self._stale_at


class Library(_Asker):
    """The library's facts. It is asked again when the GPUs or instances change, and from time to
    time.

    Its facts about a GPU or an instance stay valid until a newer answer has other ones. So a
    divided GPU does not become a whole one while the library cannot be asked. For one caller at a
    time.
    """

    # The last answer, and the GPUs that it is about.
    _answer = Answer()
    _asked: tuple[Gpu, ...] = ()

    def complete(self, inventory: Inventory) -> Inventory:
        """Returns the inventory with the library's facts; unchanged if no GPU is NVIDIA's.

        Waits for the library, at most `seconds`. Does not ask it if nothing has changed, nor while
        a GPU sleeps.
        """
        asked = [gpu for gpu in inventory.gpus if _is_known_to_library(gpu)]
        if not asked:
            return inventory

        # The kernel's files show which instances exist. If these changed, the answer is stale.
        is_other = {_key(gpu) for gpu in asked} != {_key(gpu) for gpu in self._asked}
        is_stale = is_other or self._is_stale()
        if is_stale and not any(gpu.is_asleep for gpu in asked):
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
        try:
            return _parse_answer(self._helper.ask(version))
        except (OSError, *_NOT_UNDERSTOOD) as error:
            # The facts of the last answer stay.
            return Answer(trouble=str(error))


class Sensors(_Asker):
    """Measures the load, the memory in use, the power and the temperature of NVIDIA's GPUs.

    For one caller at a time.
    """

    _last: Mapping[str, Measured] = MappingProxyType({})

    def measure(self, inventory: Inventory) -> Mapping[str, Measured]:
        """Returns what was measured in the last seconds, by PCI address.

        Empty if the library does not answer, or one of the GPUs sleeps.
        """
        asked = [gpu for gpu in inventory.gpus if _is_known_to_library(gpu) and not gpu.parent]
        if not asked or any(gpu.is_asleep for gpu in asked):
            return {}
        if self._is_stale():
            self._last = {}
            with contextlib.suppress(OSError, *_NOT_UNDERSTOOD):
                self._last = _parse_measured(self._helper.ask(asked[0].driver_version, "measure"))
            self._stale_at = self._clock() + MEASURE_AGAIN
        return self._last


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


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a GPU does at one moment; None if the library does not tell."""

    busy: int | None = None  # percent
    memory_used: int | None = None  # bytes
    milliwatts: int | None = None
    degrees: int | None = None


def _parse_measured(document: dict[str, Any]) -> dict[str, Measured]:
    measured = {}
    for gpu in document["gpus"]:
        measured[str(gpu["address"])] = Measured(
            busy=_number(gpu.get("busy"), 100),
            memory_used=_number(gpu.get("memory_used"), _LARGEST),
            milliwatts=_number(gpu.get("milliwatts"), _LARGEST),
            degrees=_number(gpu.get("degrees"), 200),
        )
    return measured


def _parse_answer(document: dict[str, Any]) -> Answer:
    """Parses the helper's document. Raises one of _NOT_UNDERSTOOD for another form."""
    described = set()
    divided = set()
    parts = {}
    boards = {}
    for gpu in document["gpus"]:
        address = str(gpu["address"])
        described.add(address)
        if gpu["mig"] is True:
            divided.add(address)
        parts.update(_parts(address, gpu["parts"]))
        boards[address] = Board(
            memory=_amount(gpu.get("memory")),
            ecc=gpu["ecc"] if isinstance(gpu.get("ecc"), bool) else None,
            power_cap=_amount(gpu.get("power_cap")),
            retired_pages=_number(gpu.get("retired_pages"), _LARGEST),
            fabric=_fabric(gpu.get("fabric") or {}),
        )
    return Answer(
        described=frozenset(described),
        divided=frozenset(divided),
        parts=parts,
        boards=boards,
        cuda=_text(document.get("cuda"), _CUDA),
    )


def _fabric(described: dict[str, Any]) -> Fabric | None:
    """Returns the place of a GPU in an NVLink fabric; None if it is in none.

    GPUs whose fabric does not leave their machine have a cluster of zeros, which is no name.
    """
    state = described.get("state")
    word = _FABRIC_STATES.get(state) if isinstance(state, int) else None
    if word is None:
        return None
    if state == _COMPLETED and described.get("status") != 0:
        word = _FAILED

    cluster = _CLUSTER.fullmatch(str(described.get("cluster")))
    clique = _number(described.get("clique"), 1 << 32)
    domain = ""
    if cluster is not None and clique is not None and cluster[0].strip("0"):
        domain = f"nvlink-{'-'.join(cluster.groups())}.{clique}"
    return Fabric(domain=domain, state=word)


def _is_known_to_library(gpu: Gpu) -> bool:
    """Returns True for a GPU that NVIDIA's driver has, and for its MIG instances."""
    return gpu.vendor == "nvidia" and gpu.kind in ("gpu", DIVIDED, "partition")


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

        # Several compute instances in one GPU instance share its memory and its engines; none has its
        # own amount.
        is_alone = sharers[gpu_instance] == 1
        parts[name] = Part(
            uuid=_text(part.get("uuid"), _UUID),
            profile=_text(part.get("profile"), _PROFILE),
            memory=_amount(part.get("memory")) if is_alone else None,
            multiprocessors=_amount(part.get("multiprocessors")),
            engines=_engines(part.get("engines")) if is_alone else None,
        )
    return parts


def _engines(values: Any) -> Engines | None:
    """Returns the numbers of an instance's engines, which come in the order of the fields."""
    if not isinstance(values, list) or len(values) != len(_ENGINES):
        return None
    numbers = dict(zip(_ENGINES, values, strict=True))
    if any(_number(number, _MOST_ENGINES) is None for number in values):
        return None
    return Engines(**numbers)


def _text(value: Any, form: re.Pattern[str]) -> str | None:
    is_fit = isinstance(value, str) and form.fullmatch(value)
    return value if is_fit else None


_LARGEST = 1 << 60
_MOST_ENGINES = 1000
_ENGINES = ("copy", "decoders", "encoders", "jpeg", "optical_flow")


def _number(value: Any, most: int) -> int | None:
    is_fit = isinstance(value, int) and 0 <= value <= most
    return value if is_fit else None


def _amount(value: Any) -> int | None:
    """Returns a number of more than zero."""
    return _number(value, _LARGEST) or None


def _complete_gpu(gpu: Gpu, answer: Answer, parents: set[str | None]) -> Gpu:
    """Returns the GPU or part with the facts that the answer adds."""
    if not _is_known_to_library(gpu):
        return gpu
    board = answer.boards.get(gpu.address, _NO_BOARD)
    gpu = replace(gpu, setup=_setup(gpu, board, answer.cuda), fabric=board.fabric or gpu.fabric)

    part = answer.parts.get(gpu.name)
    if gpu.kind == "partition":
        return _complete_part(gpu, part) if part is not None else gpu

    if answer.trouble:
        note = f"NVIDIA's library cannot be asked: {answer.trouble}"
        gpu = replace(gpu, notes=(*gpu.notes, note))
    if gpu.kind == "gpu" and board.memory:
        gpu = replace(gpu, memory=board.memory)
    if gpu.address in answer.divided and gpu.name not in parents:
        notes = (*gpu.notes, _ON_WITHOUT_INSTANCE)
        gpu = replace(gpu, kind=DIVIDED, memory=None, notes=notes)
    return gpu


_NO_BOARD = Board()


def _setup(gpu: Gpu, board: Board, cuda: str | None) -> Setup:
    is_whole = gpu.parent is None
    setup = gpu.setup or Setup()
    return replace(
        setup,
        cuda=cuda or setup.cuda,
        ecc=board.ecc,
        power_cap=board.power_cap if is_whole else None,
        retired_pages=board.retired_pages if is_whole else None,
    )


def _complete_part(gpu: Gpu, part: Part) -> Gpu:
    return replace(
        gpu,
        uuid=part.uuid or gpu.uuid,
        profile=part.profile or gpu.profile,
        memory=part.memory or gpu.memory,
        compute_units=part.multiprocessors,
        engines=part.engines,
    )
