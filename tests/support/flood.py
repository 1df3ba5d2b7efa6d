"""A neighbour that opens connection after connection, two thousand a second, and says little.

`running` starts it as a process of its own, so that its descriptors and its time are its own.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

BURST = 50


@contextlib.contextmanager
def running(address: str, *, seconds: float, many: int) -> Iterator[subprocess.Popen[str]]:
    """`many` is how many connections it leaves open. It prints how many it has made."""
    command = [sys.executable, "-m", "tests.support.flood", address, str(seconds), str(many)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        try:
            yield process
        finally:
            process.kill()


def main(address: str, seconds: float, many: int) -> None:
    until = time.monotonic() + seconds
    clients: list[socket.socket] = []
    made = 0
    print("up", flush=True)
    while time.monotonic() < until:
        client = _client(address)
        if client is None:
            continue
        clients.append(client)
        made += 1
        if made % 3 == 0:
            with contextlib.suppress(OSError):
                client.send(b"GET /livez HTT")
        if len(clients) > many:
            clients.pop(0).close()
        if made % BURST == 0:
            time.sleep(BURST / 2500)
    print(made)


def _client(address: str) -> socket.socket | None:
    family, where = socket.AF_UNIX, address.removeprefix("unix:")
    target: str | tuple[str, int] = where
    if where == address:
        host, _, port = address.rpartition(":")
        family, target = socket.AF_INET, (host, int(port))
    client = socket.socket(family)
    client.setblocking(False)
    try:
        client.connect(target)
    except BlockingIOError:
        pass
    except OSError:
        client.close()
        return None
    return client


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
