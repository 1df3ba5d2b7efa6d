"""The class that all classes of the versions' modules come from.

It reads, writes, checks, merges and builds, with no knowledge of any field.
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
    """A piece of a Kubernetes object.

    None means that a field is not set; an empty list is kept as one. Objects may be changed;
    `copy` makes an independent one. Equality is by value.
    """

    # Groups of names on the wire: exactly one of each is set.
    one_of: ClassVar[tuple[tuple[str, ...], ...]] = ()
    # Merged as one value: all of it is replaced.
    atomic: ClassVar[bool] = False
    # What the document had besides, as it came.
    unknown: dict[str, Any] = {}

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], *, unknown: Literal["keep", "refuse"] = "keep"
    ) -> Self:
        """The object of a document's plain data, with nothing shared.

        Invalid names every field that breaks a rule, not only the first.
        """
        problems: list[plain.Problem] = []

        def report(path: str, text: str) -> None:
            problem = plain.Problem(path, text)
            if problem not in problems:
                problems.append(problem)

        shape = Shape("struct", struct=cls)
        obj: Self = plain.read(shape, copy.deepcopy(data), "", unknown == "keep", report)
        if isinstance(obj, cls):
            for problem in obj.problems():
                report(problem.path, problem.text)

        if problems:
            raise plain.Invalid(cls.__name__, problems)
        return obj

    def to_dict(self) -> dict[str, Any]:
        """Plain data as it goes over the wire, with nothing shared.

        Invalid for an object that breaks a rule of its version.
        """
        problems = self.problems()
        if problems:
            raise plain.Invalid(type(self).__name__, problems)
        written: dict[str, Any] = plain.write(self)
        return copy.deepcopy(written)

    def problems(self) -> list[plain.Problem]:
        """The rules that this object breaks, each with the path of its field."""
        problems: list[plain.Problem] = []

        def report(path: str, text: str) -> None:
            problems.append(plain.Problem(path, text))

        plain.check(Shape("struct", struct=type(self)), self, "", report)
        return problems

    def merge_from(self, other: Self) -> None:
        """Lays the other object over this one: what it does not say stays.

        The other is neither changed nor shared.
        """
        self._same_class(other)
        merge.merge_into(self, other)

    def clone_from(self, source: Self) -> None:
        """Makes this object equal to the source, with nothing shared."""
        self._same_class(source)
        for name in self.__struct_fields__:
            setattr(self, name, copy.deepcopy(getattr(source, name)))

    def copy(self) -> Self:
        return copy.deepcopy(self)

    @property
    def but(self) -> FieldPath[Self]:
        """The builder: `status.but.allocation.devices.with_results([...])` is a changed copy."""
        return FieldPath(self)

    def __repr__(self) -> str:
        shown = []
        for field in fields_of(type(self)).values():
            value = getattr(self, field.name)
            if value is not None:
                shown.append(f"{field.name}={value!r}")
        if self.unknown:
            shown.append(f"unknown={self.unknown!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def _same_class(self, other: object) -> None:
        if type(other) is not type(self):
            raise TypeError(f"expected a {type(self).__name__}, got a {type(other).__name__}")
