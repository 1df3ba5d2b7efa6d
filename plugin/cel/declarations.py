"""Functions as declared: signatures read from text such as "charAt: string.(int) -> string", found
by name.

Each signature stands beside its implementation in `library`. What a call costs is in `cost`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from . import types
from .types import Type
from .values import Map, Value, type_name

Implementation = Callable[..., Value]
_NAMES = {
    "dyn": types.DYN, "bool": types.BOOL, "int": types.INT, "uint": types.UINT, "double": types.DOUBLE,
    "string": types.STRING, "bytes": types.BYTES, "timestamp": types.TIMESTAMP, "duration": types.DURATION,
    "ip": Type("opaque", "net.IP"), "cidr": Type("opaque", "net.CIDR"),
}  # fmt: skip
_OBJECTS = {
    "quantity": "kubernetes.Quantity", "semver": "kubernetes.Semver", "url": "kubernetes.URL",
    "format": "kubernetes.NamedFormat", "Authorizer": "kubernetes.authorization.Authorizer",
    "PathCheck": "kubernetes.authorization.PathCheck", "GroupCheck": "kubernetes.authorization.GroupCheck",
    "ResourceCheck": "kubernetes.authorization.ResourceCheck", "Decision": "kubernetes.authorization.Decision",
}  # fmt: skip

_GENERIC = {
    "list": ("list", "list"), "map": ("map", "map"), "optional": ("opaque", "optional_type"), "type": ("type", "type"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Overload:
    name: str
    member: bool
    parameters: tuple[Type, ...]  # the receiver first
    result: Type
    implementation: Implementation
    signature: str
    guarded: bool  # whether arguments must have the declared types when they are evaluated

    def accepts(self, arguments: tuple[Value, ...] | list[Value]) -> bool:
        if len(arguments) != len(self.parameters):
            return False
        return not self.guarded or all(map(accepts, self.parameters, arguments))

    @property
    def params(self) -> frozenset[Type]:
        found: set[Type] = set()
        for of in (*self.parameters, self.result):
            _params(of, found)
        return frozenset(found)


def _params(of: Type, found: set[Type]) -> None:
    if of.kind == "param":
        found.add(of)
    for inner in of.params:
        _params(inner, found)


def accepts(of: Type, value: Value) -> bool:
    """Whether a value may be of this type; lists and maps are judged by one element, as in
    Kubernetes.
    """
    if of.kind in ("dyn", "param"):
        return True
    if of.kind == "list":
        return isinstance(value, list) and (not value or accepts(of.params[0], value[0]))
    if of.kind == "map":
        if not isinstance(value, Map):
            return False
        first = next(value.items(), None)
        return first is None or (
            accepts(of.params[0], first[0]) and accepts(of.params[1], first[1])
        )
    return type_name(value) == of.name


def declare(table: Mapping[str, Implementation], guarded: bool = True) -> list[Overload]:
    return [
        _overload(signature, implementation, guarded) for signature, implementation in table.items()
    ]


def _overload(signature: str, implementation: Implementation, guarded: bool) -> Overload:
    name, rest = signature.rsplit(": ", 1)
    left, result = rest.split(" -> ")
    receiver, _, inside = left.partition("(")
    texts = [receiver.rstrip(".")] if receiver else []
    texts += [text for text in _split(inside[:-1]) if text]
    parameters = tuple(_type(text) for text in texts)
    return Overload(
        name, bool(receiver), parameters, _type(result), implementation, signature, guarded
    )


def _split(text: str) -> list[str]:
    """At commas outside of angle brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "<") - (character == ">")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _type(text: str) -> Type:
    if "<" in text:
        head, inside = text[:-1].split("<", 1)
        params = tuple(_type(part) for part in _split(inside))
        return Type(*_GENERIC[head], params)
    if text in _OBJECTS:
        return Type("object", _OBJECTS[text])
    return _NAMES.get(text) or Type("param", text)
