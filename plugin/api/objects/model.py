"""The class that all classes of the versions' modules come from: reading, writing, checking,
merging, building.

Objects may be changed; `copy` makes an independent one. Equality is by value. No knowledge of any
field here.
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
    """A piece of a Kubernetes object. None means that a field is not set; an empty list is kept as
    one.
    """

    one_of: ClassVar[
        tuple[tuple[str, ...], ...]
    ] = ()  # groups of wire names: exactly one of each is set
    atomic: ClassVar[bool] = False  # merged as one value: all of it is replaced
    unknown: dict[str, Any] = {}  # what the document had besides, as it came

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], *, unknown: Literal["keep", "refuse"] = "keep"
    ) -> Self:
        """The object of a document's plain data; Invalid names every field that breaks a rule."""
        problems: list[plain.Problem] = []

        def report(path: str, text: str) -> None:
            problem = plain.Problem(path, text)
            if problem not in problems:
                problems.append(problem)

        made: Self = plain.read(
            Shape("struct", struct=cls), copy.deepcopy(data), "", unknown == "keep", report
        )
        if isinstance(made, cls):
            problems += [problem for problem in made.problems() if problem not in problems]
        if problems:
            raise plain.Invalid(cls.__name__, problems)
        return made

    def to_dict(self) -> dict[str, Any]:
        """Plain data as it goes over the wire; Invalid for an object that breaks a rule of its
        version.
        """
        if problems := self.problems():
            raise plain.Invalid(type(self).__name__, problems)
        written: dict[str, Any] = plain.write(self)
        return copy.deepcopy(written)

    def problems(self) -> list[plain.Problem]:
        """The rules that this object breaks, each with the path of its field."""
        found: list[plain.Problem] = []
        plain.check(
            Shape("struct", struct=type(self)),
            self,
            "",
            lambda at, text: found.append(plain.Problem(at, text)),
        )
        return found

    def merge_from(self, other: Self) -> None:
        """Lays the other object over this one: what it does not say stays. It is neither changed
        nor shared.
        """
        self._same_class(other)
        merge.merge_into(self, other)

    def clone_from(self, source: Self) -> None:
        """Makes this object equal to the source, with nothing shared."""
        self._same_class(source)
        for name, value in zip(
            self.__struct_fields__, msgspec.structs.astuple(source), strict=True
        ):
            setattr(self, name, copy.deepcopy(value))

    def copy(self) -> Self:
        return copy.deepcopy(self)

    @property
    def but(self) -> FieldPath[Self]:
        """The builder: `status.but.allocation.devices.with_results([...])` is a changed copy."""
        return FieldPath(self)

    def __repr__(self) -> str:
        pairs = [
            (field.name, getattr(self, field.name)) for field in fields_of(type(self)).values()
        ]
        shown = [f"{name}={value!r}" for name, value in pairs if value is not None]
        shown += [f"unknown={self.unknown!r}"] if self.unknown else []
        return f"{type(self).__name__}({', '.join(shown)})"

    def _same_class(self, other: object) -> None:
        if type(other) is not type(self):
            raise TypeError(f"expected a {type(self).__name__}, got a {type(other).__name__}")
