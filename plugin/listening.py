"""A TCP port that has several queues of clients: who floods one of them does not fill the others.

The kernel chooses the queue by the client's address, with a program of the kind that needs no
right. Who is taken from a queue, and what is answered, is decided by the callers.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
from array import array

# Of the kernel's headers; Python has no name for it.
_SO_ATTACH_REUSEPORT_CBPF = 51

# Instructions of the program: an operation, jumps if true and if false, a constant.
_LOAD_BYTE, _LOAD_WORD, _TO_X = 0x30, 0x20, 0x07
_SHIFT_RIGHT, _MULTIPLY, _MODULO, _XOR, _XOR_X = 0x74, 0x24, 0x94, 0xA4, 0xAC
_JUMP, _JUMP_IF_EQUAL, _RETURN = 0x05, 0x15, 0x16
_INSTRUCTION = struct.Struct("=HBBI")

# Where the header of the IP packet begins.
_IP = 0xFFF00000
_SOURCE_V4 = _IP + 12
_SOURCE_V6 = (_IP + 8, _IP + 12, _IP + 16, _IP + 20)


def by_address(host: str, port: int, queues: int, backlog: int) -> list[socket.socket]:
    """Sockets that listen at the same port, a queue each; OSError if somebody else listens there.

    Without a host, on every address of both families. One socket where the kernel has no queues.
    """
    # Queues could be shared with another process of ours, which would get half of the clients.
    _listen(host, port, backlog, shared=False).close()

    listeners: list[socket.socket] = []
    try:
        for _ in range(queues):
            listeners.append(_listen(host, port, backlog, shared=True))
        _choose_by_address(listeners[0], queues)
    except OSError:  # not every sandbox has all that Linux has
        for listener in listeners:
            listener.close()
        return [_listen(host, port, backlog, shared=False)]
    return listeners


def _listen(host: str, port: int, backlog: int, *, shared: bool) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # where IPv6 was turned off later
            return socket.create_server(
                ("", port),
                family=socket.AF_INET6,
                dualstack_ipv6=True,
                backlog=backlog,
                reuse_port=shared,
            )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=backlog, reuse_port=shared)


def _choose_by_address(listener: socket.socket, queues: int) -> None:
    """Says to the kernel which of the sockets at this port a client belongs to."""
    # Nobody outside knows who shares a queue with whom.
    seed = secrets.randbits(32)
    program = [
        (_LOAD_BYTE, 0, 0, _IP),
        (_SHIFT_RIGHT, 0, 0, 4),
        (_JUMP_IF_EQUAL, 0, 2, 4),
        (_LOAD_WORD, 0, 0, _SOURCE_V4),
        (_JUMP, 0, 0, 10),
    ]
    for number, word in enumerate(_SOURCE_V6):
        if number:
            program.append((_TO_X, 0, 0, 0))
        program.append((_LOAD_WORD, 0, 0, word))
        if number:
            program.append((_XOR_X, 0, 0, 0))
    program += [
        (_XOR, 0, 0, seed),
        (_MULTIPLY, 0, 0, 0x9E3779B1),
        (_SHIFT_RIGHT, 0, 0, 16),
        (_MODULO, 0, 0, queues),
        (_RETURN, 0, 0, 0),
    ]

    code = array("B", b"".join(_INSTRUCTION.pack(*instruction) for instruction in program))
    address, _ = code.buffer_info()
    fprog = struct.pack("@HP", len(program), address)
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, fprog)
