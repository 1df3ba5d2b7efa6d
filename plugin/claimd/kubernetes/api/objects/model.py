"""The base class of all classes in the modules of the versions.

It reads, writes, checks, merges and builds objects by the fields of their class.
"""

from __future__ import annotations

import copy
import pprint
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self, TypeVar

import msgspec

from . import client_names, descriptions, merge, plain
from .build import Change, FieldPath
from .shapes import Shape, fields_of

M = TypeVar("M", bound="Model")


class Docstring:
    """The docstring of a class without one in the source: its description and its fields'.

    It is made when somebody reads it.
    """

    def __get__(self, obj: object, cls: type[Model]) -> str:
        return descriptions.docstring_of(cls)


class Builder:
    """The builder of an object, or of a class."""

    def __get__(self, obj: M | None, cls: type[M]) -> FieldPath[M]:
        return FieldPath(cls if obj is None else obj)


class Model(msgspec.Struct, kw_only=True, rename="camel"):
    """A part of a Kubernetes object.

    None means that a field is not set. An empty list is not the same as None. Objects are mutable,
    and equal if their values are. `copy` makes an independent object.
    """

    # Groups of names on the wire. In each group exactly one field has to have a value.
    one_of: ClassVar[tuple[tuple[str, ...], ...]] = ()
    # True: a merge replaces the whole object, instead of single fields.
    atomic: ClassVar[bool] = False
    # `status.but.allocation.devices.with_results([...])` is a changed copy of the status.
    but: ClassVar[Builder] = Builder()
    # The interface of the official client's models, whose objects may take the place of each other.
    attribute_map: ClassVar[client_names.AttributeMap] = client_names.AttributeMap()
    openapi_types: ClassVar[client_names.OpenApiTypes] = client_names.OpenApiTypes()
    # The fields of the document that the class does not have, unchanged.
    unknown: dict[str, Any] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__doc__ is None:
            cls.__doc__ = Docstring()  # type: ignore[assignment]

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], *, unknown: Literal["keep", "refuse"] = "keep"
    ) -> Self:
        """Returns the object for plain data, and shares no value with the data.

        Raises Invalid if any field breaks a rule. The exception names all such fields.
        """
        problems: list[plain.Problem] = []

        def report(path: str, text: str) -> None:
            problem = plain.Problem(path, text)
            if problem not in problems:
                problems.append(problem)

        # Reading reports what cannot become an object at all. The rules of the object come after.
        shape = Shape("struct", struct=cls)
        obj: Self = plain.read_value(shape, copy.deepcopy(data), "", unknown == "keep", report)
        if isinstance(obj, cls):
            for problem in obj.problems():
                report(problem.path, problem.text)

        if problems:
            raise plain.Invalid(cls.__name__, problems)
        return obj

    def to_dict(self, *, names: Literal["json", "python"] = "json") -> dict[str, Any]:
        """Returns the object as plain data, and shares no value with it.

        The fields have their names in JSON, as a server takes them, and those that are not set are
        left out. Raises Invalid if the object breaks a rule of its version.

        With the names of Python the result is that of the official client's `to_dict()`: it has
        all fields, and None for those that are not set. It checks no rule.
        """
        if names == "python":
            with_all = client_names.to_python(self)
            return copy.deepcopy(with_all)
        problems = self.problems()
        if problems:
            raise plain.Invalid(type(self).__name__, problems)
        written: dict[str, Any] = plain.write(self)
        return copy.deepcopy(written)

    def to_str(self) -> str:
        """Returns the object as text for people, in the form of the official client."""
        return pprint.pformat(self.to_dict(names="python"))

    def problems(self) -> list[plain.Problem]:
        """Returns the rules that this object breaks, with the paths of the fields."""
        problems: list[plain.Problem] = []

        def report(path: str, text: str) -> None:
            problems.append(plain.Problem(path, text))

        plain.check(Shape("struct", struct=type(self)), self, "", report)
        return problems

    def merge_from(self, other: Self) -> None:
        """Merges the other object into this one. Fields that the other does not set stay.

        The other object is not changed, and no value is shared with it.
        """
        self._check_class(other)
        merge.merge_into(self, other)

    def clone_from(self, source: Self) -> None:
        """Makes this object equal to the source, and shares no value with it."""
        self._check_class(source)
        for name in self.__struct_fields__:
            setattr(self, name, copy.deepcopy(getattr(source, name)))

    def copy(self) -> Self:
        return copy.deepcopy(self)

    def __add__(self, change: Change[Self]) -> Self:
        """Returns a changed copy. The change comes from a builder of the class."""
        if not isinstance(change, Change):
            return NotImplemented
        if change.struct is not type(self):
            raise TypeError(
                f"expected a change of a {type(self).__name__}, "
                f"got one of a {change.struct.__name__}"
            )
        return change.apply_to(self)

    def __repr__(self) -> str:
        # Most fields of a large object are not set, and would hide the others.
        shown = []
        for field in fields_of(type(self)).values():
            value = getattr(self, field.name)
            if value is not None:
                shown.append(f"{field.name}={value!r}")
        if self.unknown:
            shown.append(f"unknown={self.unknown!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def _check_class(self, other: object) -> None:
        if type(other) is not type(self):
            raise TypeError(f"expected a {type(self).__name__}, got a {type(other).__name__}")
