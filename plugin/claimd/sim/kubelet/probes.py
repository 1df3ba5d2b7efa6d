"""The probes of one container: runs them periodically, and counts their results.

The caller decides what to do with the results.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from claimd.kubernetes.api.document import Document

from ..runtime.container import Container

STARTUP, READINESS, LIVENESS = "startupProbe", "readinessProbe", "livenessProbe"
KINDS = (STARTUP, READINESS, LIVENESS)
_TITLES = {STARTUP: "Startup", READINESS: "Readiness", LIVENESS: "Liveness"}
_DEFAULTS = {"periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3}
_HANDLERS = ("exec", "httpGet", "tcpSocket")
_LOOPBACK = "127.0.0.1"  # containers have this machine's network
_OUTPUT_LIMIT = 10_000  # bytes of an answer that are read
_AGENT = "kube-probe/1.37"


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """The functions to call with results."""

    changed: Callable[[], None]  # after each change of started or ready
    tell: Callable[[str], Awaitable[None]]  # with the reason of a failed probe
    kill: Callable[
        [str, Document], Awaitable[None]
    ]  # with the probe that has reached its failure threshold


class Probes:
    """The probes of one attempt. They run from `start` to `stop`, or until the attempt has ended."""

    def __init__(self, spec: Document, attempt: Container, callbacks: Callbacks) -> None:
        """Prepares the probes; `spec` is the container's, and `attempt` is its running attempt."""
        self.attempt = attempt
        self._spec, self._callbacks = spec, callbacks
        self._probes = {kind: spec[kind] for kind in KINDS if is_run(spec.get(kind))}
        self._started = asyncio.Event()
        if STARTUP not in self._probes:
            self._started.set()
        self._ready = READINESS not in self._probes
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def has_started(self) -> bool:
        return self._started.is_set()

    @property
    def is_ready(self) -> bool:
        return self._ready and self.has_started

    def start(self) -> None:
        for kind in self._probes:
            name = f"{kind} of {self._spec['name']}"
            self._tasks.append(asyncio.create_task(self._run(kind), name=name))

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _run(self, kind: str) -> None:
        probe = _DEFAULTS | {name: value for name, value in self._probes[kind].items() if value}
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        # The other probes wait until the container has started.
        if kind != STARTUP:
            await self._started.wait()

        # A result takes effect only after as many equal results in a row as the threshold says.
        before, in_a_row = None, 0
        while self.attempt.running:
            problem = await check(probe, self._spec, self.attempt)
            if problem is not None and self.attempt.running:
                await self._callbacks.tell(f"{_TITLES[kind]} probe failed: {problem}")

            succeeded = problem is None
            in_a_row = in_a_row + 1 if succeeded is before else 1
            before = succeeded
            threshold = probe["successThreshold" if succeeded else "failureThreshold"]
            if in_a_row >= threshold and await self._conclude(kind, succeeded):
                return
            await asyncio.sleep(probe["periodSeconds"])

    async def _conclude(self, kind: str, succeeded: bool) -> bool:
        """Handles a row of equal results. Returns True if this probe is finished."""
        if kind == READINESS:
            if self._ready is not succeeded:
                self._ready = succeeded
                self._callbacks.changed()
            return False
        if not succeeded:
            await self._callbacks.kill(_TITLES[kind].lower(), self._probes[kind])
            return True
        if kind == STARTUP:
            self._started.set()
            self._callbacks.changed()
        return kind == STARTUP


def is_run(probe: Document | None) -> bool:
    """Returns True if the probe has a handler that is supported."""
    return probe is not None and any(probe.get(handler) is not None for handler in _HANDLERS)


async def check(probe: Document, spec: Document, attempt: Container) -> str | None:
    """Runs the probe once. Returns None if it succeeds, otherwise the problem."""
    seconds = probe["timeoutSeconds"]
    try:
        async with asyncio.timeout(seconds):
            if probe.get("exec") is not None:
                code, output = await attempt.execute(probe["exec"].get("command") or [])
                return None if code == 0 else output.strip() or f"exit code {code}"
            if probe.get("httpGet") is not None:
                return await _get(probe["httpGet"], spec)
            await _connect(probe["tcpSocket"], spec)
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    except (OSError, ValueError) as error:
        return str(error)
    return None


async def _connect(action: Document, spec: Document) -> None:
    host = action.get("host") or _LOOPBACK
    _, writer = await asyncio.open_connection(host, _port(action, spec))
    writer.close()


async def _get(action: Document, spec: Document) -> str | None:
    host, port = action.get("host") or _LOOPBACK, _port(action, spec)
    path = action.get("path") or "/"
    headers = {"Host": f"{host}:{port}", "User-Agent": _AGENT, "Accept": "*/*"}
    headers |= {each["name"]: each["value"] for each in action.get("httpHeaders") or ()}
    lines = [f"GET {path if path.startswith('/') else '/' + path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in (headers | {"Connection": "close"}).items()]
    if any(character in line for line in lines for character in "\r\n"):
        raise ValueError("a header or the path has an end of a line in it")

    context = _unverified_context() if action.get("scheme") == "HTTPS" else None
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode())
        answer = await reader.readline()
    finally:
        writer.close()

    # Any answer with a status from 200 to 399 counts as success.
    words = answer[:_OUTPUT_LIMIT].decode(errors="replace").split()
    if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].isdecimal():
        return "what answers there does not speak HTTP"
    if 200 <= int(words[1]) < 400:
        return None
    return f"HTTP probe failed with statuscode: {words[1]}"


def _unverified_context() -> ssl.SSLContext:
    """Returns a TLS context that accepts any certificate: a probe checks only the answer."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _port(action: Document, spec: Document) -> int:
    """Resolves a port number, or the name of a port of the container."""
    port = action["port"]
    for known in spec.get("ports") or ():
        if known.get("name") == port:
            return int(known["containerPort"])
    with contextlib.suppress(ValueError):
        return int(port)
    raise ValueError(f"the container has no port {port}")
