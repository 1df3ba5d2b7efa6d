"""Runs in a guest and does what the tests ask for. It needs only the standard library.

Each connection begins with one line of JSON. `shell` runs a command, `python` runs a program in
this process, and `connect` joins the connection with a socket of the guest: the path of a unix
socket, or the port of a server of the guest's loopback.
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
import subprocess
import threading
import traceback
from collections.abc import Callable
from typing import Any

PORT = 7000

# What programs of `python` keep from one to the next, such as open files.
_kept: dict[str, Any] = {}


def main() -> None:
    with socket.create_server(("0.0.0.0", PORT), backlog=64) as server:
        print("ready", flush=True)
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_serve, args=(connection,), daemon=True).start()


def _serve(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        asked = json.loads(read_line(connection))
        if "connect" in asked:
            _join(connection, asked["connect"])
            return
        answer = _shell(**asked) if "shell" in asked else _python(**asked)
        connection.sendall(json.dumps(answer).encode() + b"\n")


def read_line(connection: socket.socket) -> bytes:
    """Reads one line, and nothing of what follows."""
    line = b""
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte:
            break
        line += byte
    return line


def _shell(shell: str, timeout: float) -> dict[str, Any]:
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", shell],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return {"rc": 124, "output": (error.stdout or b"").decode(errors="replace")}
    return {"rc": done.returncode, "output": done.stdout.decode(errors="replace")}


def _python(python: str) -> dict[str, Any]:
    """Runs a program. What it prints is the output."""
    output = io.StringIO()
    code = 0
    try:
        names = {"kept": _kept, "print": _printer(output)}
        exec(compile(python, "asked", "exec"), names)
    except BaseException:  # noqa: BLE001  the test is told whatever went wrong
        traceback.print_exc(file=output)
        code = 1
    return {"rc": code, "output": output.getvalue()}


def _printer(output: io.StringIO) -> Any:
    def show(*values: object, **options: Any) -> None:
        print(*values, **options, file=output)

    return show


def _join(connection: socket.socket, address: str | int) -> None:
    try:
        other = dial(address)
    except OSError as error:
        connection.sendall(json.dumps({"error": str(error)}).encode() + b"\n")
        return
    connection.sendall(b"{}\n")
    with other:
        join(connection, other)


def dial(address: str | int) -> socket.socket:
    """Returns a connection to a unix socket, or to a port of the loopback."""
    if isinstance(address, int):
        return socket.create_connection(("127.0.0.1", address))
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


class Relay:
    """Joins each connection to a server with one that `dial` makes."""

    def __init__(self, server: socket.socket, dial: Callable[[], socket.socket]) -> None:
        self._server = server
        self._dial = dial
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for end in tuple(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), self._dial() as far:
            self._open |= {near, far}
            try:
                join(near, far)
            finally:
                self._open -= {near, far}


def join(one: socket.socket, other: socket.socket) -> None:
    """Copies between two connections until both have ended."""
    back = threading.Thread(target=copy, args=(other, one), daemon=True)
    back.start()
    copy(one, other)
    back.join()


def copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main()
