"""A CA and the server's certificate, derived from a secret: the same secret yields the same ones.

The server stores no certificate: after a restart with the same secret, its clients still trust it.
The module needs no external tool. Python's `ssl` cannot sign, and a library that can is larger than
the whole server. Signatures are ECDSA on P-256, which every client supports.

Do not use the module for other purposes, because the time that a signature takes depends on the
key. Here, a user who could measure that time can already read the CA from a file of the same user.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import os
import ssl
from dataclasses import dataclass

from .p256 import PrivateKey

# Fixed times, so that a wrong clock makes no difference. The CA ends with its server.
NOT_BEFORE, NOT_AFTER = "200101000000Z", "491231235959Z"
CA_NAME, SERVER_NAME = "claimd-sim-ca", "claimd-sim"
# The names in a real API server's certificate. Clients may connect through a proxy or by name.
DNS_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")

# Object identifiers, encoded.
EC_PUBLIC_KEY = bytes.fromhex("2a8648ce3d0201")
CURVE_P256 = bytes.fromhex("2a8648ce3d030107")
ECDSA_WITH_SHA256 = bytes.fromhex("2a8648ce3d040302")
COMMON_NAME = bytes.fromhex("550403")
SERVER_AUTH = bytes.fromhex("2b06010505070301")
SUBJECT_KEY_ID, AUTHORITY_KEY_ID = bytes.fromhex("551d0e"), bytes.fromhex("551d23")
BASIC_CONSTRAINTS, KEY_USAGE = bytes.fromhex("551d13"), bytes.fromhex("551d0f")
EXTENDED_KEY_USAGE, SUBJECT_ALT_NAME = bytes.fromhex("551d25"), bytes.fromhex("551d11")

# Tags of ASN.1.
BOOLEAN, INTEGER, BIT_STRING, OCTET_STRING, OBJECT_ID = 0x01, 0x02, 0x03, 0x04, 0x06
UTF8_STRING, UTC_TIME, SEQUENCE, SET = 0x0C, 0x17, 0x30, 0x31
# Context-specific tags of a certificate or of an extension.
VERSION, EXTENSIONS, KEY_IDENTIFIER, DNS_NAME, IP_ADDRESS = 0xA0, 0xA3, 0x80, 0x82, 0x87

# Values of the extension KeyUsage: the number of unused bits, and the bits.
SIGN_CERTIFICATES, SIGN = b"\x02\x04", b"\x07\x80"
# The prefix of a bit string without unused bits.
ALL_OF_IT = b"\x00"


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """The certificates as PEM. Clients get `ca`. The key of the CA is not kept."""

    ca: str
    certificate: str
    key: str


def make(secret: bytes, host: str) -> Certificates:
    """Returns certificates for a server that listens at `host`, an IP address, and at localhost."""
    ca_key, server_key = (
        PrivateKey(_derive_secret(secret, name)) for name in (CA_NAME, SERVER_NAME)
    )

    ca = _certificate(
        secret,
        CA_NAME,
        ca_key,
        ca_key,
        _extension(BASIC_CONSTRAINTS, _sequence(_der(BOOLEAN, b"\xff")), critical=True),
        _extension(KEY_USAGE, _der(BIT_STRING, SIGN_CERTIFICATES), critical=True),
    )

    # The server's certificate is valid for its address and for the usual names.
    names = b"".join(_der(DNS_NAME, name.encode()) for name in DNS_NAMES)
    address = _der(IP_ADDRESS, ipaddress.ip_address(host).packed)
    certificate = _certificate(
        secret,
        SERVER_NAME,
        server_key,
        ca_key,
        _extension(BASIC_CONSTRAINTS, _sequence(), critical=True),
        _extension(KEY_USAGE, _der(BIT_STRING, SIGN), critical=True),
        _extension(EXTENDED_KEY_USAGE, _sequence(_der(OBJECT_ID, SERVER_AUTH))),
        _extension(SUBJECT_ALT_NAME, _sequence(names, address)),
    )
    return Certificates(
        ca=_pem("CERTIFICATE", ca),
        certificate=_pem("CERTIFICATE", certificate),
        key=_pem("EC PRIVATE KEY", _private_key(server_key)),
    )


def context(certificates: Certificates) -> ssl.SSLContext:
    """Returns the TLS context of a server. The key is never on disk: `ssl` reads it from memory."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with os.fdopen(os.memfd_create("claimd-sim"), "wb", buffering=0) as memory:
        memory.write((certificates.key + certificates.certificate).encode())
        context.load_cert_chain(f"/proc/self/fd/{memory.fileno()}")
    return context


def _derive_secret(secret: bytes, purpose: str) -> bytes:
    """Derives a value for one purpose from the secret. The value reveals nothing of the secret."""
    return hmac.digest(secret, purpose.encode(), hashlib.sha256)


def _certificate(
    secret: bytes, name: str, key: PrivateKey, issuer: PrivateKey, *extensions: bytes
) -> bytes:
    """Returns an X.509 certificate of version 3. Its serial number is derived from all the rest."""
    algorithm = _sequence(_der(OBJECT_ID, ECDSA_WITH_SHA256))
    validity = _sequence(_der(UTC_TIME, NOT_BEFORE.encode()), _der(UTC_TIME, NOT_AFTER.encode()))
    rest = b"".join(
        [
            algorithm,
            _name(CA_NAME),
            validity,
            _name(name),
            _sequence(
                _sequence(_der(OBJECT_ID, EC_PUBLIC_KEY), _der(OBJECT_ID, CURVE_P256)),
                _der(BIT_STRING, ALL_OF_IT + key.public),
            ),
            _der(
                EXTENSIONS,
                _sequence(
                    *extensions,
                    _extension(SUBJECT_KEY_ID, _der(OCTET_STRING, _key_id(key))),
                    _extension(AUTHORITY_KEY_ID, _sequence(_der(KEY_IDENTIFIER, _key_id(issuer)))),
                ),
            ),
        ]
    )

    serial = hmac.digest(secret, rest, hashlib.sha256)[:16]
    body = _sequence(_der(VERSION, _integer(2)), _integer(int.from_bytes(serial, "big")), rest)
    r, s = issuer.sign(body)
    signature = _sequence(_integer(r), _integer(s))
    return _sequence(body, algorithm, _der(BIT_STRING, ALL_OF_IT + signature))


def _private_key(key: PrivateKey) -> bytes:
    """Encodes the key as RFC 5915 describes."""
    curve = _der(0xA0, _der(OBJECT_ID, CURVE_P256))
    public = _der(0xA1, _der(BIT_STRING, ALL_OF_IT + key.public))
    return _sequence(_integer(1), _der(OCTET_STRING, key.scalar_bytes), curve, public)


def _key_id(key: PrivateKey) -> bytes:
    return hashlib.sha256(key.public).digest()[:20]


def _name(common_name: str) -> bytes:
    text = _der(UTF8_STRING, common_name.encode())
    return _sequence(_der(SET, _sequence(_der(OBJECT_ID, COMMON_NAME), text)))


def _extension(oid: bytes, value: bytes, *, critical: bool = False) -> bytes:
    flag = _der(BOOLEAN, b"\xff") if critical else b""
    return _sequence(_der(OBJECT_ID, oid), flag, _der(OCTET_STRING, value))


# ------------------------------------------------------------ DER


def _sequence(*parts: bytes) -> bytes:
    return _der(SEQUENCE, b"".join(parts))


def _integer(number: int) -> bytes:
    """Encodes a number that is not negative. A leading 1 bit would make it negative in DER."""
    return _der(INTEGER, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _pem(label: str, der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])
