"""Facts about objects: paths into an object, and the expected values there, without I/O.

A path is `status.phase`, `spec.devices[0].name`, `spec.devices[name=gpu-1].taints[*].key` or
`metadata.labels["app.kubernetes.io/name"]`. It leads to any number of values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OPERATORS = ("equals", "not", "contains", "exists", "count")

_STEP = re.compile(
    r"""\.?(?P<name>[A-Za-z_][\w/-]*)
    | \[(?P<index>\d+)]
    | \[(?P<all>\*)]
    | \["(?P<quoted>[^"]+)"]
    | \[(?P<key>[A-Za-z][\w.-]*)=(?P<value>[^\]]*)]""",
    re.VERBOSE,
)
_VARIABLE = re.compile(r"\$\{([^}]*)}")
_SHOWN_LENGTH = 120  # characters of a value in a message


@dataclass(frozen=True, kw_only=True)
class Check:
    """One expectation: the operator compares the values at the path."""

    path: str
    operator: str = "equals"
    value: Any = None

    def holds(self, obj: Any) -> bool:
        values = find(obj, self.path)
        match self.operator:
            case "exists":
                return bool(values) == bool(self.value)
            case "count":
                return bool(len(values) == self.value)
            case "not":
                return not any(_equals(value, self.value) for value in values)
            case "contains":
                return any(_contains(value, self.value) for value in values)
        return any(_equals(value, self.value) for value in values)

    def describe_failure(self, obj: Any) -> str:
        """Describes the actual and the expected values."""
        values = find(obj, self.path)
        seen = "absent"
        if self.operator == "count":
            seen = str(len(values))
        elif values:
            seen = " and ".join(format_value(value) for value in values[:3])
        return f"{self.path} is {seen}, expected {self.expectation}"

    @property
    def expectation(self) -> str:
        """The expectation in words."""
        match self.operator:
            case "exists":
                return "it to be there" if self.value else "it to be absent"
            case "not":
                return f"anything but {format_value(self.value)}"
            case "contains":
                return f"text with {format_value(self.value)}"
            case "count":
                return f"a count of {format_value(self.value)}"
        return format_value(self.value)


def checks(written: Mapping[str, Any]) -> list[Check]:
    """Parses facts as stories write them: for each path an expected value, or operators with
    values.

    Raises ValueError if they are invalid.
    """
    parsed = []
    for path, value in written.items():
        list(_steps(path))
        if not isinstance(value, dict):
            parsed.append(Check(path=path, value=value))
            continue
        unknown = [word for word in value if word not in OPERATORS]
        if unknown or not value:
            wrong = ", ".join(map(str, unknown)) or "nothing"
            raise ValueError(f"{path}: {wrong} is not one of {', '.join(OPERATORS)}")
        for operator, expected in value.items():
            parsed.append(Check(path=path, operator=operator, value=expected))
    return parsed


def find(obj: Any, path: str) -> list[Any]:
    """Returns all values that the path leads to. Raises ValueError for an invalid path."""
    values = [obj]
    for step in _steps(path):
        below: list[Any] = []
        for value in values:
            below += _follow(value, step)
        values = below
    return values


def fill(written: Any, variables: Mapping[str, str]) -> Any:
    """Replaces `${name}` in every text. Raises ValueError for an unknown name."""
    if isinstance(written, str):
        return _VARIABLE.sub(lambda match: _variable(match[1], variables), written)
    if isinstance(written, dict):
        return {fill(key, variables): fill(value, variables) for key, value in written.items()}
    if isinstance(written, list):
        return [fill(value, variables) for value in written]
    return written


def variables_in(written: Any) -> set[str]:
    """Returns the variables that are used anywhere in the value."""
    if isinstance(written, str):
        return set(_VARIABLE.findall(written))
    parts: list[Any] = []
    if isinstance(written, dict):
        parts = [*written.keys(), *written.values()]
    elif isinstance(written, list):
        parts = written
    return set().union(*(variables_in(part) for part in parts))


def format_value(value: Any) -> str:
    """Formats the value for people on one line."""
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    if len(text) > _SHOWN_LENGTH:
        return f"{text[: _SHOWN_LENGTH - 3]}..."
    return text


def _variable(name: str, variables: Mapping[str, str]) -> str:
    if name not in variables:
        kept = ", ".join(sorted(variables)) or "nothing"
        raise ValueError(f"nothing was kept as {name!r}; there is {kept}")
    return variables[name]


def _steps(path: str) -> Iterator[re.Match[str]]:
    if not path:
        raise ValueError("an empty path leads nowhere")
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None or (position == 0 and path.startswith(".")):
            raise ValueError(f"{path!r} is no path: {path[position:]!r} is not understood")
        yield match
        position = match.end()


def _follow(value: Any, step: re.Match[str]) -> Sequence[Any]:
    """Follows one step: into a map by its key, into a list by position or by a field of its items."""
    name = step["name"] or step["quoted"]
    if name:
        if isinstance(value, dict) and value.get(name) is not None:
            return [value[name]]
        return []

    if not isinstance(value, list):
        return []
    if step["index"]:
        index = int(step["index"])
        return value[index : index + 1]
    if step["all"]:
        return value
    return [
        item
        for item in value
        if isinstance(item, dict) and str(item.get(step["key"])) == step["value"]
    ]


def _equals(value: Any, expected: Any) -> bool:
    """Compares values. A text equals a number with its digits: YAML converts unquoted digits."""
    if isinstance(value, str) != isinstance(expected, str) and not isinstance(value, list | dict):
        return str(value) == str(expected)
    return bool(value == expected)


def _contains(value: Any, expected: Any) -> bool:
    if isinstance(value, str):
        return str(expected) in value
    return isinstance(value, list | dict) and any(_equals(item, expected) for item in value)
