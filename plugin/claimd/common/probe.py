"""Asks the endpoint of a running plugin, as an exec probe does.

The module imports hardly anything, since kubelets run it all the time.
"""

from __future__ import annotations

import socket
import time

RETRY_INTERVAL = 0.01


def ask(address: str, path: str, timeout: float = 3.0) -> tuple[bool, str]:
    """Returns True if the endpoint answered 200, and its text. No answer gives False."""
    try:
        with _connect(address, timeout) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            response = _read_to_end(connection)
        reason = "" if response else "the connection was closed"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        return False, f"no answer at {address}: {reason}; is `claimd run` up, with this endpoint?"

    head, _, body = response.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    return status == [b"200"], body.decode(errors="replace").strip()


def _connect(address: str, timeout: float) -> socket.socket:
    if not address.startswith("unix:"):
        host, _, port = address.rpartition(":")
        return socket.create_connection((host.strip("[]") or "localhost", int(port)), timeout)

    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    until = time.monotonic() + timeout
    try:
        while True:
            try:
                connection.connect(address.removeprefix("unix:"))
                return connection
            except BlockingIOError:
                # The queue is full. The kernel retries on a port, but not on a unix socket.
                if time.monotonic() >= until:
                    raise
                time.sleep(RETRY_INTERVAL)
    except OSError:
        connection.close()
        raise


def _read_to_end(connection: socket.socket) -> bytes:
    """Reads until the other side closes."""
    response = b""
    while chunk := connection.recv(4096):
        response += chunk
    return response
