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

# Instructions of the program: an operation and a constant, or an operation alone.
_LOAD_BYTE, _LOAD_WORD, _TO_X = 0x30, 0x20, 0x07
_SHIFT_RIGHT, _MULTIPLY, _MODULO, _XOR, _XOR_X = 0x74, 0x24, 0x94, 0xA4, 0xAC
_JUMP, _JUMP_IF_EQUAL, _RETURN = 0x05, 0x15, 0x16
_INSTRUCTION = struct.Struct("=HxxI")
_ALONE = struct.Struct("=H6x")

# One that jumps if the constant is what was loaded, so many instructions further, else so many.
_CONDITION = struct.Struct("=HBBI")

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
        # The program is the port's: any of its sockets will do.
        any_of_them, *_ = listeners
        _choose_by_address(any_of_them, queues)
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
    instruction = _INSTRUCTION.pack
    program = [
        instruction(_LOAD_BYTE, _IP),
        instruction(_SHIFT_RIGHT, 4),
        _CONDITION.pack(_JUMP_IF_EQUAL, 0, 2, 4),
        instruction(_LOAD_WORD, _SOURCE_V4),
        instruction(_JUMP, 10),
    ]
    first, *others = _SOURCE_V6
    program.append(instruction(_LOAD_WORD, first))
    for word in others:
        program.append(_ALONE.pack(_TO_X))
        program.append(instruction(_LOAD_WORD, word))
        program.append(_ALONE.pack(_XOR_X))
    program += [
        instruction(_XOR, seed),
        instruction(_MULTIPLY, 0x9E3779B1),
        instruction(_SHIFT_RIGHT, 16),
        instruction(_MODULO, queues),
        _ALONE.pack(_RETURN),
    ]

    code = array("B", b"".join(program))
    address, _ = code.buffer_info()
    fprog = struct.pack("@HP", len(program), address)
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, fprog)
