"""Static types, and the rules by which a value of one type may stand where another is expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Type:
    """A static type. `kind` is dyn, param, null, simple, list, map, type, opaque or object.

    Opaque types have parameters, and objects have fields. A param is a type that the checker has
    not determined yet.
    """

    kind: str
    name: str
    params: tuple[Type, ...] = ()

    def __str__(self) -> str:
        if self.kind == "param":
            return "dyn"
        return f"{self.name}({', '.join(map(str, self.params))})" if self.params else self.name


def _simple(name: str) -> Type:
    return Type("simple", name)


DYN: Final = Type("dyn", "dyn")
# The type of attributes in clusters where no attribute may be a list. It is dyn, but macros refuse
# to iterate over it.
ANY: Final = Type("dyn", "any")
BOOL, INT, UINT, DOUBLE = _simple("bool"), _simple("int"), _simple("uint"), _simple("double")
STRING, BYTES, NULL = _simple("string"), _simple("bytes"), Type("null", "null_type")
TIMESTAMP, DURATION = _simple("google.protobuf.Timestamp"), _simple("google.protobuf.Duration")
_NULLABLE = frozenset((TIMESTAMP.name, DURATION.name))


def list_of(element: Type) -> Type:
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", "map", (key, value))


def type_of(type_: Type) -> Type:
    return Type("type", "type", (type_,))


def optional_of(type_: Type) -> Type:
    return Type("opaque", "optional_type", (type_,))


def unwrap_optional(type_: Type) -> tuple[Type, bool]:
    """Returns the type inside an optional type and True. Returns any other type as it is and False."""
    if type_.kind == "opaque" and type_.name == "optional_type":
        return type_.params[0], True
    return type_, False


def equivalent(left: Type, right: Type) -> bool:
    """Returns True if the types differ at most in the names of their type parameters."""
    if left.kind != right.kind or len(left.params) != len(right.params):
        return False
    if left.kind != "param" and left.name != right.name:
        return False
    return all(map(equivalent, left.params, right.params))


class Substitution:
    """The meanings of the type parameters of one expression, as far as they are known."""

    def __init__(self) -> None:
        self._meanings: dict[Type, Type] = {}
        self._fresh = 0

    def fresh(self) -> Type:
        """Returns a new type parameter."""
        self._fresh += 1
        return Type("param", f"_{self._fresh}")

    def assignable(self, left: Type, right: Type) -> bool:
        """Returns the result of all_assignable() for one pair of types."""
        return self.all_assignable((left,), (right,))

    def all_assignable(self, left: tuple[Type, ...], right: tuple[Type, ...]) -> bool:
        """Returns True if each type on the left goes with the one at its place on the right.

        The meanings that this gives to type parameters are kept only if all types go together.
        """
        # A later pair may fail, so the meanings are restored then.
        before = dict(self._meanings)
        if len(left) == len(right) and all(map(self._assignable, left, right)):
            return True
        self._meanings = before
        return False

    def apply(self, type_: Type, to_dyn: bool = False) -> Type:
        """Replaces type parameters by their meanings, and with `to_dyn` unknown ones by dyn."""
        if type_.kind == "param":
            if type_ in self._meanings:
                return self.apply(self._meanings[type_], to_dyn)
            return DYN if to_dyn else type_
        if not type_.params:
            return type_
        return Type(type_.kind, type_.name, tuple(self.apply(p, to_dyn) for p in type_.params))

    def _assignable(self, left: Type, right: Type) -> bool:
        # A type parameter takes the other type as its meaning, or compares it with the one it has.
        if right.kind == "param":
            valid, decided = self._substitute(left, right)
            if valid or decided:
                return valid
        if left.kind == "param":
            return self._substitute(right, left)[0]

        if left.kind == "dyn" or right.kind == "dyn":
            return True
        # null goes with types whose values may be missing: messages, opaque types and times.
        if left.kind == "null":
            return _nullable(right)
        if right.kind == "null":
            return _nullable(left)
        # Types without parameters go together only if they are the same.
        if left.kind in ("simple", "object"):
            return left == right
        if left.kind == "type":
            return right.kind == "type"

        return (
            left.kind == right.kind
            and left.name == right.name
            and len(left.params) == len(right.params)
            and all(map(self._assignable, left.params, right.params))
        )

    def _substitute(self, value: Type, param: Type) -> tuple[bool, bool]:
        """Makes the value the meaning of the parameter, if that is possible.

        Returns whether it is, and whether the parameter had a meaning already.
        """
        if value == param:
            return True, True

        meaning = self._meanings.get(param)
        if meaning is not None:
            if value == meaning:
                return True, True
            if not self._assignable(value, meaning):
                return False, True
            # The parameter must go with both, so the more general type becomes its meaning.
            general = most_general(value, meaning)
            if self._free(param, general):
                self._meanings[param] = general
            return True, True

        if self._free(param, value):
            self._meanings[param] = value
            return True, False
        return False, False

    def _free(self, param: Type, within: Type) -> bool:
        """Returns True if the parameter does not occur in the type that is to be its meaning."""
        if param == within:
            return False
        if within.kind == "param":
            meaning = self._meanings.get(within)
            return meaning is None or self._free(param, meaning)
        return all(self._free(param, p) for p in within.params)


def _nullable(type_: Type) -> bool:
    return type_.kind in ("null", "object", "opaque", "dyn") or type_.name in _NULLABLE


def most_general(left: Type, right: Type) -> Type:
    """Returns the more general one of two types that go together."""
    return left if _less_specific(left, right) else right


def _less_specific(left: Type, right: Type) -> bool:
    if left.kind in ("dyn", "param"):
        return True
    if right.kind in ("dyn", "param"):
        return False
    if left.kind != right.kind:
        return False
    if left.kind == "type":
        return True
    if left.kind in ("opaque", "list", "map"):
        return (
            left.name == right.name
            and len(left.params) == len(right.params)
            and all(map(_less_specific, left.params, right.params))
        )

    return left == right
