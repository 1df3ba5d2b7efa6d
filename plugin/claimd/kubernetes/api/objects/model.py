"""The base class of all classes in the modules of the versions.

It reads, writes, checks, merges and builds objects by the fields of their class.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import msgspec

from . import merge, plain
from .build import FieldPath
from .shapes import Shape, fields_of


class Model(msgspec.Struct, kw_only=True, rename="camel"):
    """A part of a Kubernetes object.

    None means that a field is not set. An empty list is not the same as None. Objects are mutable,
    and equal if their values are. `copy` makes an independent object.
    """

    # Groups of names on the wire. In each group exactly one field has to have a value.
    one_of: ClassVar[tuple[tuple[str, ...], ...]] = ()
    # True: a merge replaces the whole object, instead of single fields.
    atomic: ClassVar[bool] = False
    # The fields of the document that the class does not have, unchanged.
    unknown: dict[str, Any] = {}

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

    def to_dict(self) -> dict[str, Any]:
        """Returns the wire form as plain data, and shares no value with it.

        Raises Invalid if the object breaks a rule of its version.
        """
        problems = self.problems()
        if problems:
            raise plain.Invalid(type(self).__name__, problems)
        written: dict[str, Any] = plain.write(self)
        return copy.deepcopy(written)

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

    @property
    def but(self) -> FieldPath[Self]:
        """A builder: `status.but.allocation.devices.with_results([...])` is a changed copy."""
        return FieldPath(self)

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
