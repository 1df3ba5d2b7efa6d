"""Asks a running plugin's endpoint, as an exec probe does.

Loads next to nothing, since kubelets run it all day.
"""

from __future__ import annotations

import socket
import time

RETRY_INTERVAL = 0.01


def ask(address: str, path: str, timeout: float = 3.0) -> tuple[bool, str]:
    """Whether the endpoint said yes, and its words. No answer is a no."""
    try:
        with _connect(address, timeout) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            response = _read(connection)
    except OSError as error:
        reason = error.strerror or error
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
                # So many wait that the kernel takes no more. On a port it would try again by itself.
                if time.monotonic() >= until:
                    raise
                time.sleep(RETRY_INTERVAL)
    except OSError:
        connection.close()
        raise


def _read(connection: socket.socket) -> bytes:
    """All that comes until the other side has said everything."""
    response = b""
    while chunk := connection.recv(4096):
        response += chunk
    return response
