"""Declarations of functions, which are read from texts such as "charAt: string.(int) -> string".

The modules of `library` have a table each that maps these signatures to implementations. The module
`cost` has the cost of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from . import types
from .types import Type
from .values import Map, Value, type_name

Implementation = Callable[..., Value]
_NAMES = {
    "dyn": types.DYN,
    "bool": types.BOOL,
    "int": types.INT,
    "uint": types.UINT,
    "double": types.DOUBLE,
    "string": types.STRING,
    "bytes": types.BYTES,
    "timestamp": types.TIMESTAMP,
    "duration": types.DURATION,
    "ip": Type("opaque", "net.IP"),
    "cidr": Type("opaque", "net.CIDR"),
}
_OBJECTS = {
    "quantity": "kubernetes.Quantity",
    "semver": "kubernetes.Semver",
    "url": "kubernetes.URL",
    "format": "kubernetes.NamedFormat",
    "Authorizer": "kubernetes.authorization.Authorizer",
    "PathCheck": "kubernetes.authorization.PathCheck",
    "GroupCheck": "kubernetes.authorization.GroupCheck",
    "ResourceCheck": "kubernetes.authorization.ResourceCheck",
    "Decision": "kubernetes.authorization.Decision",
}
_GENERIC = {
    "list": ("list", "list"),
    "map": ("map", "map"),
    "optional": ("opaque", "optional_type"),
    "type": ("type", "type"),
}


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function. The receiver of a member function is its first parameter.

    A `guarded` overload checks the types of its arguments again when it is evaluated. `open_types`
    are its type parameters, which have a meaning of their own in each call.
    """

    name: str
    member: bool
    parameters: tuple[Type, ...]
    result: Type
    implementation: Implementation
    signature: str
    guarded: bool
    open_types: frozenset[Type]

    def accepts(self, arguments: tuple[Value, ...] | list[Value]) -> bool:
        """Returns True if the overload can be called with these values."""
        if len(arguments) != len(self.parameters):
            return False
        return not self.guarded or all(map(accepts, self.parameters, arguments))


def accepts(type_: Type, value: Value) -> bool:
    """Returns True if the value may be of this type.

    Lists and maps are judged by their first element, as in Kubernetes.
    """
    if type_.kind in ("dyn", "param"):
        return True
    if type_.kind == "list":
        return isinstance(value, list) and (not value or accepts(type_.params[0], value[0]))
    if type_.kind == "map":
        if not isinstance(value, Map):
            return False
        for key, member in value.items():
            return accepts(type_.params[0], key) and accepts(type_.params[1], member)
        return True

    return type_name(value) == type_.name


def declare(table: Mapping[str, Implementation], guarded: bool = True) -> list[Overload]:
    """Returns the overloads that a table of signatures and implementations declares."""
    return [
        _overload(signature, implementation, guarded) for signature, implementation in table.items()
    ]


def _overload(signature: str, implementation: Implementation, guarded: bool) -> Overload:
    name, rest = signature.rsplit(": ", 1)
    takes, gives = rest.split(" -> ")
    receiver, _, inside = takes.partition("(")
    texts = [receiver.rstrip(".")] if receiver else []
    texts += [text for text in _split_parameters(inside[:-1]) if text]

    parameters, result = tuple(map(_type, texts)), _type(gives)
    open_types: set[Type] = set()
    for type_ in (*parameters, result):
        open_types |= _open_types(type_)

    return Overload(
        name=name,
        member=bool(receiver),
        parameters=parameters,
        result=result,
        implementation=implementation,
        signature=signature,
        guarded=guarded,
        open_types=frozenset(open_types),
    )


def _open_types(type_: Type) -> set[Type]:
    open_types = {type_} if type_.kind == "param" else set()
    for inner in type_.params:
        open_types |= _open_types(inner)
    return open_types


def _split_parameters(text: str) -> list[str]:
    """Splits the text at the commas outside of angle brackets."""
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
        params = tuple(_type(part) for part in _split_parameters(inside))
        return Type(*_GENERIC[head], params)
    if text in _OBJECTS:
        return Type("object", _OBJECTS[text])
    # Any other name is a type parameter.
    return _NAMES.get(text) or Type("param", text)
