"""Functions of IP addresses, networks and URLs as values."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from ..declarations import Implementation
from ..errors import EvalError
from ..values import NAMES, STRICT, Map
from .kubernetes import parses

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Ip:
    address: _Address

    @property
    def cost_size(self) -> int:
        return self.address.max_prefixlen // 8

    def __str__(self) -> str:
        return str(self.address)


@dataclass(frozen=True, slots=True)
class Cidr:
    address: _Address
    bits: int

    @property
    def cost_size(self) -> int:
        return -(-self.bits // 8)

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        return ipaddress.ip_network(f"{self.address}/{self.bits}", strict=False)

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"


@dataclass(frozen=True, slots=True)
class Url:
    scheme: str
    host: str
    path: str
    query: str
    text: str


NAMES.update({Ip: "net.IP", Cidr: "net.CIDR", Url: "kubernetes.URL"})
STRICT.update((Ip, Cidr, Url))


def parse_ip(text: str) -> Ip:
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise EvalError(f"{text!r} is no IP address: {error}") from None
    # Kubernetes refuses these forms, although they are valid addresses.
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or "%" in text):
        raise EvalError(f"{text!r}: IPv4 in IPv6 and zones are not allowed")
    return Ip(address)


def parse_cidr(text: str) -> Cidr:
    address, slash, bits = text.rpartition("/")
    if not slash or not re.fullmatch("0|[1-9][0-9]{0,2}", bits) or "%" in address:
        raise EvalError(f"expected a network such as 10.0.0.0/8, got {text!r}")
    # Kubernetes allows host bits in a network, which Python's own class refuses.
    ip = parse_ip(address)
    if int(bits) > ip.address.max_prefixlen:
        raise EvalError(f"{text!r} has too many bits in its prefix")
    return Cidr(ip.address, int(bits))


def _contains(cidr: Cidr, other: Cidr) -> bool:
    if cidr.address.version != other.address.version or cidr.bits > other.bits:
        return False
    return other.address in cidr.network


def _link_local_multicast(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return address in ipaddress.ip_network("224.0.0.0/24")
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 0x02


def _link_local(address: _Address) -> bool:
    network = "169.254.0.0/16" if address.version == 4 else "fe80::/10"
    return address in ipaddress.ip_network(network)


def _global(address: _Address) -> bool:
    broadcast = str(address) == "255.255.255.255"
    return not (
        broadcast
        or address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or _link_local(address)
    )


_URL = re.compile(r"(?:([a-zA-Z][a-zA-Z0-9+.-]*):)?(.*)", re.DOTALL)
_PORT = re.compile(r"[^:]*(?::[0-9]*)?", re.DOTALL)
_LAST_PORT = re.compile(r"[^:]*|.*:[0-9]*", re.DOTALL)
_HOST_ALLOWED = re.compile(
    r"(?:[A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\"\x80-\U0010ffff]|%25|%[89a-fA-F][0-9a-fA-F])*"
)
_ZONE_ALLOWED = re.compile(
    r"(?:[A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\"\x80-\U0010ffff]|%[0-9a-fA-F]{2})+"
)
_USER_ALLOWED = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_NOT_IN_PATH = re.compile(r"[^A-Za-z0-9\-_.~!$&'()*+,;=:@/%\[\]]")
# A % that begins no escape.
_ESCAPES = re.compile(r"%(?![0-9a-fA-F]{2})")


def parse_url(text: str) -> Url:
    """Reads an absolute URL or an absolute path. Raises EvalError if Go does not take the text."""
    if not text or re.search(r"[\x00-\x1f\x7f]", text):
        raise EvalError(f"{text!r} is no URL")

    match = _URL.fullmatch(text)
    assert match
    scheme, rest = (match[1] or "").lower(), match[2]

    # Go first reads the text as the target of a request. In a target a # belongs to the path, and a
    # path must begin at the root. Escapes must be valid, except in a text such as mailto:%zz.
    target, _, _ = rest.partition("?")
    is_rooted = target.startswith("/")
    is_relative = not scheme and not is_rooted and text != "*"
    is_opaque = scheme and not is_rooted
    if is_relative or (not is_opaque and _ESCAPES.search(target)):
        raise EvalError(f"{text!r} is not an absolute URL")

    # Then Go reads it as a URL.
    path, _, query = rest.partition("#")[0].partition("?")
    if scheme and not path.startswith("/"):
        return Url(scheme, "", "", query, text)

    host = ""
    if path.startswith("//") and (scheme or not path.startswith("///")):
        host, slash, path = path[2:].partition("/")
        host, path = _host(host, scheme, text), slash + path
    return Url(scheme, host, path, query, text)


def _host(authority: str, scheme: str, text: str) -> str:
    user, at, host = authority.rpartition("@")
    bracket = host.rfind("[")
    if bracket == 0 and "]" in host:
        name, _, port = host[1:].rpartition("]")
        valid = bool(re.fullmatch("(:[0-9]*)?", port)) and _is_ipv6(name)
    elif bracket >= 0:
        valid = False
    else:
        # A host may contain colons if the scheme is not HTTP.
        with_port = _PORT if scheme in ("http", "https") else _LAST_PORT
        valid = bool(with_port.fullmatch(host) and _HOST_ALLOWED.fullmatch(host))
    if not valid or (at and not _USER_ALLOWED.fullmatch(user)):
        raise EvalError(f"{text!r} has no valid host")
    return unquote_to_bytes(host).decode("utf-8", "replace")


def _is_ipv6(name: str) -> bool:
    """Returns True if the text is an IPv6 address, perhaps with an escaped zone."""
    address, escaped, zone = name.partition("%25")
    if not _HOST_ALLOWED.fullmatch(address) or (escaped and not _ZONE_ALLOWED.fullmatch(zone)):
        return False

    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False

    return "%" not in address


def _hostname(url: Url) -> str:
    host = url.host
    if host.startswith("["):
        return host[1 : host.index("]")]
    return host.rsplit(":", 1)[0] if ":" in host else host


def _port(url: Url) -> str:
    rest = url.host.rsplit("]", 1)[-1]
    return rest.rsplit(":", 1)[1] if ":" in rest else ""


def _escaped_path(url: Url) -> str:
    return _NOT_IN_PATH.sub(_percent, url.path)


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match.group().encode())


def _query(url: Url) -> Map:
    """Returns the values of each name, in order. Pairs with invalid escapes are left out."""
    by_name: dict[str, list[str]] = {}
    for pair in url.query.split("&"):
        if not pair or ";" in pair or _ESCAPES.search(pair):
            continue
        name, _, value = pair.partition("=")
        by_name.setdefault(_unescape(name), []).append(_unescape(value))
    return Map(dict(by_name))


def _unescape(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "replace")


TABLE: dict[str, Implementation] = {
    "ip: (string) -> ip": parse_ip,
    "isIP: (string) -> bool": lambda text: parses(parse_ip, text),
    "ip.isCanonical: (string) -> bool": lambda text: str(parse_ip(text)) == text,
    "family: ip.() -> int": lambda ip: ip.address.version,
    "isUnspecified: ip.() -> bool": lambda ip: ip.address.is_unspecified,
    "isLoopback: ip.() -> bool": lambda ip: ip.address.is_loopback,
    "isLinkLocalMulticast: ip.() -> bool": lambda ip: _link_local_multicast(ip.address),
    "isLinkLocalUnicast: ip.() -> bool": lambda ip: _link_local(ip.address),
    "isGlobalUnicast: ip.() -> bool": lambda ip: _global(ip.address),
    "cidr: (string) -> cidr": parse_cidr,
    "isCIDR: (string) -> bool": lambda text: parses(parse_cidr, text),
    "containsIP: cidr.(string) -> bool": lambda cidr, text: parse_ip(text).address in cidr.network,
    "containsIP: cidr.(ip) -> bool": lambda cidr, ip: ip.address in cidr.network,
    "containsCIDR: cidr.(string) -> bool": lambda cidr, text: _contains(cidr, parse_cidr(text)),
    "containsCIDR: cidr.(cidr) -> bool": _contains,
    "ip: cidr.() -> ip": lambda cidr: Ip(cidr.address),
    "prefixLength: cidr.() -> int": lambda cidr: cidr.bits,
    "masked: cidr.() -> cidr": lambda cidr: Cidr(cidr.network.network_address, cidr.bits),
    "url: (string) -> url": parse_url,
    "isURL: (string) -> bool": lambda text: parses(parse_url, text),
    "getScheme: url.() -> string": lambda url: url.scheme,
    "getHost: url.() -> string": lambda url: url.host,
    "getHostname: url.() -> string": _hostname,
    "getPort: url.() -> string": _port,
    "getEscapedPath: url.() -> string": _escaped_path,
    "getQuery: url.() -> map<string, list<string>>": _query,
}
