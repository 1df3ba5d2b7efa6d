"""Facts about objects: where in an object to look, and what is expected there. Pure: no clock, no
API server.

A path is `status.phase`, `spec.devices[0].name`, `spec.devices[name=gpu-1].taints[*].key` or
`metadata.labels["app.kubernetes.io/name"]`. It leads to any number of values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WORDS = ("equals", "not", "contains", "exists", "count")

_STEP = re.compile(
    r"""\.?(?P<name>[A-Za-z_][\w/-]*)
    | \[(?P<index>\d+)]
    | \[(?P<all>\*)]
    | \["(?P<quoted>[^"]+)"]
    | \[(?P<key>[A-Za-z][\w.-]*)=(?P<value>[^\]]*)]""",
    re.VERBOSE,
)
_VARIABLE = re.compile(r"\$\{([^}]*)}")


@dataclass(frozen=True, kw_only=True)
class Check:
    """One expectation: what is found at the path does as `word` says."""

    path: str
    word: str = "equals"
    value: Any = None

    def holds(self, obj: Any) -> bool:
        found = find(obj, self.path)
        match self.word:
            case "exists":
                return bool(found) == bool(self.value)
            case "count":
                return bool(len(found) == self.value)
            case "not":
                return not any(_same(one, self.value) for one in found)
            case "contains":
                return any(_contains(one, self.value) for one in found)
        return any(_same(one, self.value) for one in found)

    def seen(self, obj: Any) -> str:
        """What is there, beside what should be."""
        found = find(obj, self.path)
        there = " and ".join(shown(one) for one in found[:3]) if found else "absent"
        if self.word == "count":
            there = str(len(found))
        return f"{self.path} is {there}, expected {self.expected}"

    @property
    def expected(self) -> str:
        if self.word == "exists":
            return "it to be there" if self.value else "it to be absent"
        return {
            "equals": "",
            "not": "anything but ",
            "contains": "text with ",
            "count": "a count of ",
        }[self.word] + shown(self.value)


def checks(written: Mapping[str, Any]) -> list[Check]:
    """As stories have them: a value that is expected, or one word with its value. ValueError says
    what is wrong.
    """
    made = []
    for path, value in written.items():
        list(_steps(path))
        if not isinstance(value, dict):
            made.append(Check(path=path, value=value))
            continue
        unknown = [word for word in value if word not in WORDS]
        if unknown or not value:
            raise ValueError(
                f"{path}: {', '.join(unknown) or 'nothing'} is not one of {', '.join(WORDS)}"
            )
        made += [Check(path=path, word=word, value=one) for word, one in value.items()]
    return made


def find(obj: Any, path: str) -> list[Any]:
    """All that the path leads to. ValueError if it is no path."""
    found = [obj]
    for step in _steps(path):
        found = [inner for one in found for inner in _down(one, step)]
    return found


def filled(written: Any, variables: Mapping[str, str]) -> Any:
    """With `${name}` replaced in every text. ValueError for a name that nothing was kept under."""
    if isinstance(written, str):
        return _VARIABLE.sub(lambda match: _variable(match[1], variables), written)
    if isinstance(written, dict):
        return {filled(key, variables): filled(value, variables) for key, value in written.items()}
    if isinstance(written, list):
        return [filled(value, variables) for value in written]
    return written


def named(written: Any) -> set[str]:
    """The variables that are used anywhere in it."""
    if isinstance(written, str):
        return set(_VARIABLE.findall(written))
    if isinstance(written, dict):
        return {name for pair in written.items() for one in pair for name in named(one)}
    if isinstance(written, list):
        return {name for one in written for name in named(one)}
    return set()


def shown(value: Any) -> str:
    """For people, on one line."""
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= 120 else f"{text[:117]}..."


def _variable(name: str, variables: Mapping[str, str]) -> str:
    if name not in variables:
        raise ValueError(
            f"nothing was kept as {name!r}; there is {', '.join(sorted(variables)) or 'nothing'}"
        )
    return variables[name]


def _steps(path: str) -> Iterator[re.Match[str]]:
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None or (position == 0 and path.startswith(".")):
            raise ValueError(f"{path!r} is no path: {path[position:]!r} is not understood")
        yield match
        position = match.end()
    if not path:
        raise ValueError("an empty path leads nowhere")


def _down(obj: Any, step: re.Match[str]) -> Sequence[Any]:
    name = step["name"] or step["quoted"]
    if name:
        return [obj[name]] if isinstance(obj, dict) and obj.get(name) is not None else []
    if not isinstance(obj, list):
        return []
    if step["index"]:
        return obj[int(step["index"]) : int(step["index"]) + 1]
    if step["all"]:
        return obj
    return [
        one for one in obj if isinstance(one, dict) and str(one.get(step["key"])) == step["value"]
    ]


def _same(found: Any, value: Any) -> bool:
    if isinstance(found, str) != isinstance(value, str) and not isinstance(found, list | dict):
        return str(found) == str(value)
    return bool(found == value)


def _contains(found: Any, value: Any) -> bool:
    if isinstance(found, str):
        return str(value) in found
    return isinstance(found, list | dict) and any(_same(one, value) for one in found)
