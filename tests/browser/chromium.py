"""Chromium without a window, driven over a pair of pipes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import itertools
import json
import os
import shutil
import tempfile
from pathlib import Path

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
_OPTIONS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # it runs as root, on a page of ours
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)


class PageError(Exception):
    """The page, or the browser, says what is wrong."""


class Tab:
    """One page. Errors of its scripts are kept in `errors`."""

    def __init__(self, pipe, session):
        self._pipe, self._session = pipe, session
        self.errors = []

    async def send(self, method, **params):
        return await self._pipe.send(method, params, self._session)

    async def open(self, address):
        await self.send("Page.navigate", url=address)

    async def value(self, expression):
        """What an expression is in the page; a promise is waited for."""
        answer = await self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise PageError(json.dumps(answer["exceptionDetails"])[:500])
        return answer["result"].get("value")

    async def until(self, expression, seconds=30):
        """Returns once an expression is true, which is looked at in each frame."""
        looking = f"""new Promise((resolve) => {{
            const look = () => ({expression}) ? resolve(true) : setTimeout(look, 5);
            look();
        }})"""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        return await self.value(looking)
                    except PageError as error:
                        # The page is being opened: what was asked of the one before is lost.
                        if not any(word in str(error) for word in ("navigat", "destroyed", "null")):
                            raise
                        await asyncio.sleep(0.02)
        except TimeoutError:
            text = await self.value("document.body.innerText")
            raise PageError(f"never: {expression}; the page says:\n{text[:2000]}") from None

    async def press(self, key, text=""):
        codes = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "ArrowRight": 39}
        code = codes.get(key, ord(key[0].upper()))
        extra = {"text": text or key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            await self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **extra
            )

    async def size(self, width, height, *, dark=False):
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.send("Emulation.setEmulatedMedia", features=features)

    async def picture(self, path):
        answer = await self.send("Page.captureScreenshot", format="png")
        Path(path).write_bytes(base64.b64decode(answer["data"]))


class _Pipe:
    def __init__(self, reader, write):
        self._reader, self._write = reader, write
        self._numbers = itertools.count(1)
        self._answers = {}
        self.tabs = {}

    async def send(self, method, params=None, session=None):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        os.write(self._write, json.dumps(message).encode() + b"\0")
        return await answer

    async def read(self):
        while message := await self._reader.readuntil(b"\0"):
            event = json.loads(message[:-1])
            if "id" in event:
                answer = self._answers.pop(event["id"])
                if answer.done():
                    continue
                if "error" in event:
                    answer.set_exception(PageError(event["error"]["message"]))
                else:
                    answer.set_result(event["result"])
                continue
            tab = self.tabs.get(event.get("sessionId"))
            if tab and event["method"] == "Runtime.exceptionThrown":
                tab.errors.append(event["params"]["exceptionDetails"])
            if tab and event["method"] == "Log.entryAdded":
                tab.errors.append(event["params"]["entry"])


def _high_pipe():
    """With descriptors that are not 3 or 4, which are the browser's."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high


@contextlib.asynccontextmanager
async def browser():
    """Gives what opens a tab, and the process id of the browser."""
    to_browser, our_write = _high_pipe()
    our_read, from_browser = _high_pipe()
    with tempfile.TemporaryDirectory(prefix="claimd-browser-") as profile:
        process = await asyncio.create_subprocess_exec(
            # The two descriptors have to be 3 and 4.
            "/bin/bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash",
            PROGRAM, *_OPTIONS, f"--user-data-dir={profile}",
            pass_fds=(to_browser, from_browser),
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        reader = asyncio.StreamReader(limit=64 << 20)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(our_read, "rb", 0)
        )
        pipe = _Pipe(reader, our_write)
        reading = asyncio.create_task(pipe.read())

        async def tab():
            target = await pipe.send("Target.createTarget", {"url": "about:blank"})
            attached = await pipe.send(
                "Target.attachToTarget", {"targetId": target["targetId"], "flatten": True}
            )
            new_tab = pipe.tabs[attached["sessionId"]] = Tab(pipe, attached["sessionId"])
            for domain in ("Page", "Runtime", "Log", "Performance"):
                await new_tab.send(f"{domain}.enable")
            return new_tab

        try:
            yield tab, process.pid
        finally:
            reading.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            await process.wait()
            transport.close()
            os.close(our_write)


def private_memory(parent):
    """Bytes that each process below `parent` has to itself, by its kind."""
    by_kind = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if _is_below(int(folder.name), parent):
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").split()
                kinds = [word[7:].decode() for word in words if word.startswith(b"--type=")]
                kind = kinds[0] if kinds else "browser"
                lines = (folder / "smaps_rollup").read_text().splitlines()
                sizes = [int(line.split()[1]) for line in lines if line.startswith("Private_")]
                by_kind.setdefault(kind, []).append(sum(sizes) * 1024)
    return by_kind


def _is_below(pid, parent):
    while pid > 1:
        if pid == parent:
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False
