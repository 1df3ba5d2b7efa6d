"""A TCP port with several queues of clients, so that a flood from one address fills only one queue.

The kernel chooses the queue by the client's address, with a classic BPF program, which needs no
privilege.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
from array import array

# From the kernel's headers; Python has no name for it.
_SO_ATTACH_REUSEPORT_CBPF = 51

# Instructions of the program: operation, jump if true, jump if false, constant.
_INSTRUCTION = struct.Struct("=HBBI")
_LOAD_BYTE, _LOAD_WORD, _TO_X = 0x30, 0x20, 0x07
_SHIFT_RIGHT, _MULTIPLY, _MODULO, _XOR, _XOR_X = 0x74, 0x24, 0x94, 0xA4, 0xAC
_JUMP, _JUMP_IF_EQUAL, _RETURN = 0x05, 0x15, 0x16

# The IP packet's header, and the words of its source address.
_IP = 0xFFF00000
_SOURCE_V4 = _IP + 12
_SOURCE_V6 = (_IP + 8, _IP + 12, _IP + 16, _IP + 20)


def by_address(host: str, port: int, queues: int, backlog: int) -> list[socket.socket]:
    """Returns sockets that listen at the same port, each with its own queue.

    Without a host, they listen on every address of both families. Returns one socket if the kernel
    has no such queues. Raises OSError if another program listens at the port.
    """
    # Without this check, the sockets could share the port with another process of ours, which would
    # get half of the clients.
    _listen(host, port, backlog, shared=False).close()

    listeners: list[socket.socket] = []
    try:
        for _ in range(queues):
            listeners.append(_listen(host, port, backlog, shared=True))
        # The program belongs to the port, so any of its sockets will do.
        _choose_by_address(listeners[0], queues)
    except OSError:  # a sandbox may not have all of Linux
        for listener in listeners:
            listener.close()
        return [_listen(host, port, backlog, shared=False)]
    return listeners


def _listen(host: str, port: int, backlog: int, *, shared: bool) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # IPv6 may have been turned off
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
    """Tells the kernel which of the port's sockets gets a client."""
    # The seed is secret, so that nobody can choose an address that shares a queue with the kubelet.
    seed = secrets.randbits(32)
    first, *others = _SOURCE_V6
    program = [
        (_LOAD_BYTE, 0, 0, _IP),
        (_SHIFT_RIGHT, 0, 0, 4),
        (_JUMP_IF_EQUAL, 0, 2, 4),
        (_LOAD_WORD, 0, 0, _SOURCE_V4),
        (_JUMP, 0, 0, 10),
        (_LOAD_WORD, 0, 0, first),
    ]
    for word in others:
        program += [(_TO_X, 0, 0, 0), (_LOAD_WORD, 0, 0, word), (_XOR_X, 0, 0, 0)]
    program += [
        (_XOR, 0, 0, seed),
        (_MULTIPLY, 0, 0, 0x9E3779B1),
        (_SHIFT_RIGHT, 0, 0, 16),
        (_MODULO, 0, 0, queues),
        (_RETURN, 0, 0, 0),
    ]

    code = array("B", b"".join(_INSTRUCTION.pack(*instruction) for instruction in program))
    address, _ = code.buffer_info()
    listener.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, struct.pack("@HP", len(program), address)
    )
