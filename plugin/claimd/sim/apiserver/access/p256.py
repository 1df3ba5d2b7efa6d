"""Keys and ECDSA signatures on the curve P-256, for the certificates of a simulated server.

A multiplication on the curve takes some milliseconds. Its steps depend on the scalar, so it must
not be used with a key whose timing others could measure.
"""

from __future__ import annotations

import hashlib
import hmac

# The curve y² = x³ - 3x + b over the field of PRIME. Its points are a group of order ORDER.
PRIME = 2**256 - 2**224 + 2**192 + 2**96 - 1
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
GENERATOR = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
UNCOMPRESSED = b"\x04"

# Jacobian coordinates: (x, y, z) is the point (x/z², y/z³), so that no step needs a division. z = 0
# is the point at infinity.
Jacobian = tuple[int, int, int]


class PrivateKey:
    """A private key. The same seed of 32 bytes or more makes the same key."""

    def __init__(self, seed: bytes) -> None:
        self._scalar = _to_scalar(hashlib.sha512(seed).digest())
        x, y = _multiple(self._scalar)
        self.public = UNCOMPRESSED + x.to_bytes(32, "big") + y.to_bytes(32, "big")

    @property
    def scalar_bytes(self) -> bytes:
        return self._scalar.to_bytes(32, "big")

    def sign(self, message: bytes) -> tuple[int, int]:
        """Returns r and s of an ECDSA signature with SHA-256.

        The nonce must never be the same for two messages. It is derived from the key and the
        message.
        """
        digest = hashlib.sha256(message).digest()
        nonce = _to_scalar(hmac.digest(self.scalar_bytes, digest, hashlib.sha512))
        r = _multiple(nonce)[0] % ORDER
        s = pow(nonce, -1, ORDER) * (int.from_bytes(digest, "big") + r * self._scalar) % ORDER
        return r, s


def _to_scalar(data: bytes) -> int:
    """Returns a number from 1 to ORDER - 1.

    `data` has 64 bytes, so many more than the number needs that all numbers are equally likely.
    """
    return int.from_bytes(data, "big") % (ORDER - 1) + 1


def _multiple(scalar: int) -> tuple[int, int]:
    """Returns the product of the scalar and the generator."""
    # Double and add, from the highest bit on.
    total: Jacobian = (0, 1, 0)
    for bit in f"{scalar:b}":
        total = _double(total)
        if bit == "1":
            total = _add_generator(total)

    x, y, z = total
    inverse = pow(z, -1, PRIME)
    return x * inverse**2 % PRIME, y * inverse**3 % PRIME


def _double(point: Jacobian) -> Jacobian:
    x, y, z = point
    square = y * y % PRIME
    s = 4 * x * square % PRIME
    slope = 3 * (x - z * z) * (x + z * z) % PRIME
    new_x = (slope * slope - 2 * s) % PRIME
    new_y = (slope * (s - new_x) - 8 * square * square) % PRIME
    return new_x, new_y, 2 * y * z % PRIME


def _add_generator(point: Jacobian) -> Jacobian:
    """Returns the sum of the point and the generator.

    The point is never the generator itself, because only the scalar 1 leads there.
    """
    x, y, z = point
    if z == 0:
        return (*GENERATOR, 1)
    zz = z * z % PRIME
    h = (GENERATOR[0] * zz - x) % PRIME
    r = (GENERATOR[1] * zz * z - y) % PRIME
    hh = h * h % PRIME
    hhh, v = h * hh % PRIME, x * hh % PRIME
    new_x = (r * r - hhh - 2 * v) % PRIME
    new_y = (r * (v - new_x) - y * hhh) % PRIME
    return new_x, new_y, z * h % PRIME
