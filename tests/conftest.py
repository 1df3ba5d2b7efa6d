"""What holds for every test."""

from __future__ import annotations

import gc
import itertools
import os
import socket
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.support import samples

# A gate throws no dice: the same examples every time, so that a red run is about the change in it.
# Other examples are what the campaigns and `make fuzz` are for.
settings.register_profile("gate", derandomize=True, database=None, max_examples=samples.share(100))
settings.load_profile("gate")

# Below what the kernel gives to clients: none of a neighbour's connections takes the port between
# the look at it and its use. Test processes that run side by side begin at different ones.
_PORTS = range(20_000, 30_000)
_turns = itertools.count(7 * os.getpid())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spares the garbage collector what is collected: 300,000 objects, which all stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture
def unused_tcp_port() -> int:
    """A port that nobody listens on."""
    while True:
        port = _PORTS[next(_turns) % len(_PORTS)]
        with socket.socket() as socket_:
            if socket_.connect_ex(("127.0.0.1", port)) != 0:
                return port
