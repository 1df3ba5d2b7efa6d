"""The plugin's living processes on this machine: which they are, what they hold open, what they
have counted.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path

PERIOD = 2.0  # seconds between two samples
SETTLING = 20.0  # seconds after a start that are not compared
# What a living plugin may add from one quiet moment to another: a thread of a pool, a connection,
# pages of memory.
MORE_FILES, MORE_THREADS, MORE_KIB = 4, 32, 4096  # 32: the most that the pool may have


@dataclass(frozen=True, kw_only=True)
class Instance:
    pid: int
    pod: str  # uid
    started: str


@dataclass(frozen=True, kw_only=True)
class Sample:
    at: float
    files: int
    threads: int
    kib: int  # anonymous memory


def living() -> list[Instance]:
    instances = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"run" not in words or not any(word.endswith(b"/claimd") for word in words):
                continue
            environment = dict(
                each.split(b"=", 1)
                for each in (folder / "environ").read_bytes().split(b"\0")
                if b"=" in each
            )
            if pod := environment.get(b"CLAIMD_POD_UID"):
                started = (folder / "stat").read_text().rsplit(")", 1)[1].split()[19]
                instances.append(Instance(pid=int(folder.name), pod=pod.decode(), started=started))
        except OSError:  # it ended while we looked
            continue
    return sorted(instances, key=lambda each: int(each.started))


def sample(pid: int) -> Sample | None:
    folder = Path(f"/proc/{pid}")
    try:
        files = len(list((folder / "fd").iterdir()))
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        return Sample(
            at=time.monotonic(),
            files=files,
            threads=int(status["Threads"]),
            kib=int(status["RssAnon"].split()[0]),
        )
    except (OSError, KeyError):
        return None


def metrics(pid: int) -> dict[str, float]:
    """What this instance has counted; nothing if it does not answer. Its socket is asked where it
    sees it itself: the path from outside is too long for one.
    """
    path = f"/proc/{pid}/root/run/claimd/endpoint.sock"
    try:
        with socket.socket(socket.AF_UNIX) as way:
            way.settimeout(1)
            way.connect(path)
            way.sendall(b"GET /metrics HTTP/1.1\r\nHost: soak\r\n\r\n")
            text = b"".join(iter(lambda: way.recv(65536), b"")).decode()
    except OSError:
        return {}
    return {match[1]: float(match[2]) for match in re.finditer(r"^(claimd_\S+) (\S+)$", text, re.M)}


class Sampler(threading.Thread):
    """Samples every instance as long as it lives, and keeps what it had counted when it was last
    asked.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True, name="sampler")
        self.samples: dict[tuple[int, str], list[Sample]] = {}
        self.counted: dict[tuple[int, str], dict[str, float]] = {}
        self.pods: dict[tuple[int, str], str] = {}
        self._ending = threading.Event()

    def run(self) -> None:
        while not self._ending.wait(PERIOD):
            for each in living():
                key = each.pid, each.started
                self.pods[key] = each.pod
                if (taken := sample(each.pid)) is not None:
                    self.samples.setdefault(key, []).append(taken)
                if told := metrics(each.pid):
                    self.counted[key] = told

    def end(self) -> None:
        self._ending.set()
        self.join()

    def total(self, name: str) -> float:
        """Over all instances; what one counted in its last two seconds may be missing."""
        return sum(
            value for told in self.counted.values() for key, value in told.items() if key == name
        )


@dataclass(frozen=True, kw_only=True)
class Growth:
    seconds: float
    early: Sample
    late: Sample

    @property
    def sentence(self) -> str:
        """What has grown too much, or nothing."""
        rows = (
            ("open files", self.early.files, self.late.files, MORE_FILES),
            ("threads", self.early.threads, self.late.threads, MORE_THREADS),
            ("KiB of anonymous memory", self.early.kib, self.late.kib, MORE_KIB),
        )
        told = [
            f"{before} → {after} {what}"
            for what, before, after, more in rows
            if after > before + more
        ]
        return f"in {self.seconds:.0f} s a plugin grew: {', '.join(told)}" if told else ""


def growth(samples: list[Sample]) -> Growth | None:
    """From the first third of a life to its last third: medians, which bursts leave alone."""
    settled = [each for each in samples if each.at >= samples[0].at + SETTLING]
    if len(settled) < 9:
        return None
    third = len(settled) // 3
    return Growth(
        seconds=settled[-1].at - settled[0].at,
        early=_median(settled[:third]),
        late=_median(settled[-third:]),
    )


def _median(samples: list[Sample]) -> Sample:
    middle = len(samples) // 2
    return Sample(
        at=samples[middle].at,
        files=sorted(each.files for each in samples)[middle],
        threads=sorted(each.threads for each in samples)[middle],
        kib=sorted(each.kib for each in samples)[middle],
    )
