"""strace around a real process: what it did with files, and a death or an error at the Nth time
that it does something.

`when=N` counts for each thread by itself, and only what a path filter lets through. Nothing of
claimd is known here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Names with ? may be missing on an architecture.
STORING = (
    "openat,write,pwrite64,fsync,fdatasync,ftruncate,close,"
    "?rename,?renameat,?renameat2,?unlink,unlinkat,?mkdir,mkdirat,?link,linkat"
)
TALKING = "flock,sendmsg,sendto,connect,bind,listen,?accept4"
_LINE = re.compile(r"(?P<thread>\d+) +(?P<time>[\d.]+) (?P<rest>.*)")
_CALL = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+)(?P<note>.*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One finished system call."""

    thread: int
    time: float  # when it began
    name: str
    arguments: str  # as strace writes them
    result: int


def command(
    output: Path, *, calls: str, inject: str = "", paths: Iterable[str] = (), fast: bool = True
) -> list[str]:
    """To put before a command: the process that it starts is ours, the tracer a grandchild. If
    `fast`, only what is traced is slowed down, but then no signal can be injected and the tracer
    cannot let go.
    """
    return [
        "strace",
        "-D",
        *(["--seccomp-bpf"] if fast else []),
        *_options(output, calls, inject, paths),
    ]


async def let_go(process: int) -> None:
    """Ends the tracing of a process that was started with `command(fast=False)`. A tracer that
    sleeps over the end of a thread hears no SIGTERM, ever.
    """
    until = asyncio.get_running_loop().time() + 2
    while tracer := tracer_of(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(
                tracer,
                signal.SIGTERM if asyncio.get_running_loop().time() < until else signal.SIGKILL,
            )
        await asyncio.sleep(0.005)


async def finished(output: Path, process: int) -> None:
    """Returns when the trace of a process that has ended is whole. Now and then strace sleeps over
    the end; then all the rest has long been written.
    """
    until = asyncio.get_running_loop().time() + 2
    while not re.search(
        rf"^{process} .*\+\+\+ (exited|killed)", output.read_text(errors="replace"), re.MULTILINE
    ):
        if asyncio.get_running_loop().time() > until:
            return
        await asyncio.sleep(0.005)


def tracer_of(process: int) -> int:
    """The process that traces this one, or 0."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return int(status.partition("TracerPid:")[2].split()[0])


@contextlib.asynccontextmanager
async def attached(
    process: int, output: Path, *, calls: str, inject: str = "", paths: Iterable[str] = ()
) -> AsyncIterator[None]:
    """Traces a running process, from before the body to after it. The process may die in between."""
    tracer = await asyncio.create_subprocess_exec(
        "strace",
        "-p",
        str(process),
        *_options(output, calls, inject, paths),
        stderr=asyncio.subprocess.PIPE,
    )
    assert tracer.stderr is not None
    said = b""
    while b"attached" not in said:
        line = await tracer.stderr.readline()
        if not line:
            raise RuntimeError(f"strace could not attach: {said.decode()}; is ptrace allowed here?")
        said += line
    draining = asyncio.ensure_future(tracer.stderr.read())
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            tracer.terminate()  # lets the process go
        try:
            async with asyncio.timeout(2.0):
                await tracer.wait()
        except TimeoutError:  # it slept over the end of a thread, or ended at this moment
            with contextlib.suppress(ProcessLookupError):
                tracer.kill()
            await tracer.wait()
        await draining


def _options(output: Path, calls: str, inject: str, paths: Iterable[str]) -> list[str]:
    options = [
        "-f",
        "-I",
        "2",
        "-y",
        "-ttt",
        "-s",
        "1000000",
        "-o",
        str(output),
        "-e",
        f"trace={calls}",
        "-e",
        "signal=kill",
    ]
    for path in paths:
        options += ["-P", path]
    return [*options, "-e", f"inject={inject}"] if inject else options


def read(output: Path) -> Iterator[Call]:
    """The calls that came to an end, in the order in which they did."""
    begun: dict[int, tuple[float, str]] = {}
    for line in output.read_text(errors="surrogateescape").splitlines():
        if not (match := _LINE.match(line)):
            continue
        thread, time, rest = int(match["thread"]), float(match["time"]), match["rest"]
        if rest.endswith("<unfinished ...>"):
            begun[thread] = time, rest.removesuffix("<unfinished ...>")
            continue
        if rest.startswith("<... "):
            time, first = begun.pop(thread, (time, ""))
            rest = first + rest.partition("resumed>")[2]
        if call_match := _CALL.fullmatch(rest):
            yield Call(
                thread=thread,
                time=time,
                name=call_match["name"],
                arguments=call_match["arguments"],
                result=int(call_match["result"]),
            )


def path(call: Call) -> str:
    """The first path that the call is about, or ""."""
    if match := re.match(r'(?:AT_FDCWD[^,]*, )?"((?:[^"\\\\]|\\\\.)*)"', call.arguments):
        return match[1]
    if match := re.match(r"\d+<([^>]*)>", call.arguments):
        return match[1]
    return ""
