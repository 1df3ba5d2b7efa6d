"""A `dataclass` decorator that makes classes faster than the standard library's.

The standard decorator writes the methods of each class as source and compiles them. For fifty
classes that takes a tenth of the processor time of `claimd run` until its devices are published.
This decorator gives each class closures over its fields, which are compiled already. The functions
of `dataclasses` (`fields`, `replace`, `is_dataclass`) work with such classes.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ("dataclass",)

T = TypeVar("T")
Compare = Callable[[Any, Any], bool]

_ORDER: tuple[tuple[str, Compare], ...] = (
    ("__lt__", operator.lt),
    ("__le__", operator.le),
    ("__gt__", operator.gt),
    ("__ge__", operator.ge),
)


def _dataclass(
    *,
    slots: bool,
    kw_only: bool,
    frozen: bool = False,
    order: bool = False,
    eq: bool = True,
    repr: bool = True,
) -> Callable[[type[T]], type[T]]:
    """Makes a dataclass with slots and keyword-only fields; supports no other kind.

    Such a class behaves like one of the standard library, except that `inspect` sees no fields in
    the signature of `__init__`.
    """
    if not (slots and kw_only):
        raise TypeError("without slots or kw_only, take the standard library's dataclass")

    def make(cls: type[T]) -> type[T]:
        # The standard decorator compiles nothing here, because no method is requested.
        plain = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)
        made: type[T] = plain(cls)
        fields = dataclasses.fields(made)  # type: ignore[arg-type]

        methods: dict[str, Any] = {"__init__": _init(made, fields)}
        if repr:
            methods["__repr__"] = _repr(fields)
        if eq:
            methods |= _comparison(fields, hashed=frozen, ordered=order)
        if frozen:
            methods |= {
                "__setattr__": _refuse_to_set,
                "__delattr__": _refuse_to_delete,
                "__setstate__": _set_state,
            }

        for name, method in methods.items():
            if name not in cls.__dict__:
                setattr(made, name, method)
        return made

    return make


def _init(cls: type, fields: tuple[dataclasses.Field[Any], ...]) -> Callable[..., None]:
    names = frozenset(field.name for field in fields if field.init)
    defaults: dict[str, Any] = {}
    factories: list[tuple[str, Callable[[], Any]]] = []
    derived: list[tuple[str, Callable[[], Any]]] = []
    for field in fields:
        if field.default_factory is not dataclasses.MISSING:
            (factories if field.init else derived).append((field.name, field.default_factory))
        elif field.default is not dataclasses.MISSING:
            defaults[field.name] = field.default

    # Slots are set by their descriptors, because __setattr__ of a frozen class refuses.
    setters = {field.name: getattr(cls, field.name).__set__ for field in fields}
    given_setters = tuple((name, setters[name]) for name in setters if name in names)
    complete = getattr(cls, "__post_init__", None)

    def __init__(self: Any, **given: Any) -> None:
        for name, factory in factories:
            if name not in given:
                given[name] = factory()
        values = defaults | given

        # With each name found and no more values than names, the two sets are the same.
        try:
            for name, set_slot in given_setters:
                set_slot(self, values[name])
        except KeyError:
            raise TypeError(_complaint(cls, names, values)) from None
        if len(values) != len(given_setters):
            raise TypeError(_complaint(cls, names, values))

        for name, factory in derived:
            setters[name](self, factory())
        if complete is not None:
            complete(self)

    return __init__


def _complaint(cls: type, names: frozenset[str], values: dict[str, Any]) -> str:
    missing = ", ".join(sorted(names - values.keys())) or "nothing"
    unknown = ", ".join(sorted(values.keys() - names)) or "nothing"
    return f"{cls.__qualname__}(): missing is {missing}, unknown is {unknown}"


def _repr(fields: tuple[dataclasses.Field[Any], ...]) -> Callable[[Any], str]:
    names = [field.name for field in fields if field.repr]

    def __repr__(self: Any) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({shown})"

    return __repr__


def _comparison(
    fields: tuple[dataclasses.Field[Any], ...], *, hashed: bool, ordered: bool
) -> dict[str, Any]:
    """Returns the methods that compare and hash objects, by name.

    Two objects are equal if they have the same class and equal fields.
    """
    # For one field attrgetter returns the value, for several a tuple. Both can be compared and
    # hashed.
    values = operator.attrgetter(*(field.name for field in fields if field.compare))

    def comparing(compare: Compare) -> Compare:
        def method(self: Any, other: Any) -> Any:
            if other.__class__ is self.__class__:
                return compare(values(self), values(other))
            return NotImplemented

        return method

    def __hash__(self: Any) -> int:
        return hash(values(self))

    methods: dict[str, Any] = {
        "__eq__": comparing(operator.eq),
        "__hash__": __hash__ if hashed else None,
    }
    if ordered:
        methods |= {name: comparing(compare) for name, compare in _ORDER}
    return methods


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _set_state(self: Any, state: tuple[None, dict[str, Any]]) -> None:
    """Sets the fields of a copy, for `copy` and `pickle`, in spite of `_refuse_to_set`."""
    for name, value in state[1].items():
        object.__setattr__(self, name, value)


# Type checkers understand the standard decorator, which makes classes with the same interface.
if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass
