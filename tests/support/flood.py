"""A neighbour that opens connection after connection, and sends little on them.

`running` starts it as a separate process, with descriptors and CPU time of its own. It goes on
until the test ends it, because the duration of a test depends on how busy the machine is.
"""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

BURST = 50
IP_BIND_ADDRESS_NO_PORT = 24  # a port is chosen at the connect, so that there are enough of them


class Flood:
    """A flood of connections that is under way."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def end(self) -> int:
        """Ends the flood; returns how many connections it has opened."""
        count, _ = self._process.communicate()
        return int(count)


@contextlib.contextmanager
def running(address: str, *, many: int, source: str = "", rate: int = 2500) -> Iterator[Flood]:
    """`many` is how many connections it leaves open; when the block begins, they are.

    `source` is its address, `rate` how many connections it makes in a second; 0: all that it can.
    """
    command = [sys.executable, "-m", "tests.support.flood", address, str(many), str(rate), source]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        try:
            yield Flood(process)
        finally:
            process.kill()


def main(address: str, many: int, rate: int, source: str) -> None:
    """Opens connections until the other end of the standard input is closed."""
    clients: list[socket.socket] = []
    count = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        client = _client(address, source)
        if client is None:
            continue
        clients.append(client)
        count += 1
        if count == many:
            print("up", flush=True)
        if count % 3 == 0:
            with contextlib.suppress(OSError):
                client.send(b"GET /livez HTT")
        if len(clients) > many:
            clients.pop(0).close()
        if rate and count % BURST == 0:
            time.sleep(BURST / rate)
    print(count)


def _client(address: str, source: str) -> socket.socket | None:
    family, where = socket.AF_UNIX, address.removeprefix("unix:")
    target: str | tuple[str, int] = where
    if where == address:
        host, _, port = address.rpartition(":")
        family, target = socket.AF_INET, (host, int(port))
    client = socket.socket(family)
    client.setblocking(False)
    if source:
        client.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        client.bind((source, 0))
    try:
        client.connect(target)
    except BlockingIOError:
        pass
    except OSError:
        client.close()
        return None
    return client


if __name__ == "__main__":
    address, many, rate, source = sys.argv[1:]
    main(address, int(many), int(rate), source)
