"""Stories as data: nodes, and chapters of steps, read from YAML and checked whole before anything
is started.

What a step does is the teller's. docs/stories.md tells people how to write one.
"""

from __future__ import annotations

import dataclasses
import difflib
import shlex
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from devices import fake, faults

from ... import config, errors
from ...api import text
from . import facts

DEFAULT = "tour"
_SHIPPED = resources.files(__package__) / "stories"


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A misspelled key is an error, not a wish ignored."""


class Say(_Strict, frozen=True):
    """A text for people."""

    say: str


class Apply(_Strict, frozen=True):
    """Objects, as `kubectl apply` has them."""

    apply: list[dict[str, Any]]
    namespace: str = "default"


class Delete(_Strict, frozen=True):
    delete: str  # KIND/NAME
    namespace: str = "default"


class Wait(_Strict, frozen=True):
    """Until `count` objects of the kind that are as `where` says are as `until` says, or until
    there is none.
    """

    wait: str  # KIND or KIND/NAME
    namespace: str = "default"
    where: dict[str, Any] = {}
    until: dict[str, Any] | Literal["gone"] = {}
    count: int = 1
    within: float = 20.0  # seconds
    keep: dict[str, str] = {}  # variable: path
    tell: str = ""

    @property
    def kind(self) -> str:
        return self.wait.partition("/")[0]

    @property
    def name(self) -> str:
        return self.wait.partition("/")[2]


class Order(_Strict, frozen=True):
    """To the fake GPUs of a node: NODE ORDER DEVICE [VALUE], as in `claimd fake fault`."""

    order: str


class Kill(_Strict, frozen=True):
    """Ends a node's `claimd run` by SIGKILL, at once or in the middle of the next prepare."""

    kill: str  # NODE
    during: Literal["", "prepare"] = ""


class Struck(_Strict, frozen=True):
    """Waits for the kill of `kill` with `during`."""

    struck: str  # NODE


class Stop(_Strict, frozen=True):
    """Ends a node's `claimd run` by SIGTERM, and keeps it from being started again."""

    stop: str  # NODE


class Start(_Strict, frozen=True):
    start: str  # NODE


class Logs(_Strict, frozen=True):
    """What a container of a pod has printed."""

    logs: str  # POD
    namespace: str = "default"
    container: str = ""  # where there are several
    contains: list[str] = []
    lines: str = ""  # a regular expression: which lines are shown; empty: all
    within: float = 20.0


class Run(_Strict, frozen=True):
    """A command of claimd, with the cluster's kubeconfig."""

    run: str
    contains: list[str] = []
    lines: str = ""
    exits: int = 0
    within: float = 30.0


class Show(_Strict, frozen=True):
    """A part of an object, as YAML."""

    show: str  # KIND/NAME
    namespace: str = "default"
    path: str = ""


Step = Say | Apply | Delete | Wait | Order | Kill | Struck | Stop | Start | Logs | Run | Show
_VERBS: dict[str, type[Step]] = {kind.__name__.lower(): kind for kind in get_args(Step)}


class Chapter(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    steps: tuple[Step, ...]


class Node(_Strict, frozen=True):
    name: str
    gpus: list[str]  # words as `claimd fake write` takes them
    settings: dict[str, str | int | float | bool] = {}


class Story(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    about: str
    nodes: tuple[Node, ...]
    settings: dict[str, str | int | float | bool]  # of every node's `claimd run`
    chapters: tuple[Chapter, ...]


class _Document(_Strict, frozen=True):
    title: str
    nodes: list[Node]
    about: str = ""
    settings: dict[str, str | int | float | bool] = {}
    chapters: list[dict[str, Any]] = []


def names() -> list[str]:
    """The stories that come with claimd."""
    return sorted(
        found.name.removesuffix(".yaml")
        for found in _SHIPPED.iterdir()
        if found.name.endswith(".yaml")
    )


def read(which: str) -> Story:
    """A story by its name, or by its file. UsageError says where it is wrong."""
    if which in names():
        return parse((_SHIPPED / f"{which}.yaml").read_text(), f"{which}.yaml")
    try:
        return parse(Path(which).read_text(), which)
    except OSError as error:
        raise errors.UsageError(
            f"no story {which!r}: {error.strerror}; give a file, or one of {', '.join(names())}"
        ) from error
    except UnicodeDecodeError as error:
        raise errors.UsageError(f"{which} is no text: {error}") from error


def parse(written: str, file: str) -> Story:
    try:
        document = msgspec.convert(text.load(written), _Document)
        _check_nodes(document)
    except ValueError as error:  # msgspec's too
        raise errors.UsageError(f"{file}: {error}") from error
    chapters = []
    for number, chapter in enumerate(document.chapters, 1):
        steps = chapter.get("steps")
        place = f"{file}, chapter {number}"
        if (
            set(chapter) != {"title", "steps"}
            or not isinstance(chapter["title"], str)
            or not isinstance(steps, list)
        ):
            raise errors.UsageError(
                f"{place}: expected a title and a list of steps, got {', '.join(map(str, chapter))}"
            )
        made = tuple(
            _step(step, f"{place} ({chapter['title']}), step {at}")
            for at, step in enumerate(steps, 1)
        )
        chapters.append(Chapter(title=chapter["title"], steps=made))
    story = Story(
        title=document.title,
        about=document.about,
        nodes=tuple(document.nodes),
        settings=document.settings,
        chapters=tuple(chapters),
    )
    _check_names(story, file)
    return story


def _step(written: Any, place: str) -> Step:
    if not isinstance(written, dict):
        raise errors.UsageError(f"{place}: expected keys and values, got {facts.shown(written)}")
    verbs = [key for key in written if key in _VERBS]
    if len(verbs) != 1:
        close = [
            name for key in written for name in difflib.get_close_matches(str(key), _VERBS, n=1)
        ]
        hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(_VERBS)}"
        what = "several steps in one" if verbs else "unknown step"
        raise errors.UsageError(f"{place}: {what}: {', '.join(map(str, written))}; {hint}")
    try:
        step = msgspec.convert(written, _VERBS[verbs[0]])
        _check(step)
    except ValueError as error:
        raise errors.UsageError(f"{place} ({verbs[0]}): {error}") from error
    return step


def _check(step: Step) -> None:
    """ValueError for what no run of the story could do."""
    match step:
        case Wait():
            facts.checks(step.where)
            facts.checks(step.until if isinstance(step.until, dict) else {})
            for path in step.keep.values():
                facts.find({}, path)
            if step.until == "gone" and step.keep:
                raise ValueError("what is gone cannot be kept")
        case Order():
            words = step.order.split()
            if not 3 <= len(words) <= 4 or words[1] not in faults.FAULTS:
                raise ValueError(
                    f"{step.order!r} is no order: expected NODE ORDER DEVICE [VALUE], with an order of "
                    f"{', '.join(faults.FAULTS)}"
                )
        case Run() if shlex.split(step.run)[:1] != ["claimd"]:
            raise ValueError(f"{step.run!r} does not begin with claimd: stories run nothing else")
        case Delete(delete=name) | Show(show=name) if not all(name.partition("/")):
            raise ValueError(f"{name!r} is not KIND/NAME")
        case Apply():
            for obj in step.apply:
                if not all(isinstance(obj.get(key), kind) for key, kind in _OBJECT.items()):
                    raise ValueError("an object has an apiVersion, a kind and metadata")
        case _:
            pass
    if isinstance(step, Show) and step.path:
        facts.find({}, step.path)


_OBJECT = {"apiVersion": str, "kind": str, "metadata": dict}


def _check_nodes(document: _Document) -> None:
    if not document.nodes:
        raise ValueError("a story needs a node")
    for node in document.nodes:
        fake.parse(node.gpus)
    known = {config.key_of(setting.name) for setting in dataclasses.fields(config.Config)}
    for name in sorted(
        set(document.settings).union(*(node.settings for node in document.nodes)) - known
    ):
        raise ValueError(f"`claimd run` has no setting {name!r}")
    seen = [node.name for node in document.nodes]
    if len(set(seen)) != len(seen):
        raise ValueError("two nodes have the same name")


def _check_names(story: Story, file: str) -> None:
    """Nodes and variables, in the order in which they are used."""
    kept: set[str] = set()
    nodes = {node.name for node in story.nodes}
    for place, step in _places(story, file):
        unknown = facts.named(msgspec.to_builtins(step)) - kept
        if isinstance(step, Wait):
            unknown -= set(step.keep)  # its own `tell` may use them
            kept |= set(step.keep)
        if unknown:
            raise errors.UsageError(
                f"{place}: nothing was kept as {', '.join(sorted(unknown))} before"
            )
        node = _node_of(step)
        if node and not facts.named(node) and node not in nodes:
            raise errors.UsageError(
                f"{place}: no node {node!r}; the story has {', '.join(sorted(nodes))}"
            )


def _places(story: Story, file: str) -> Iterator[tuple[str, Step]]:
    for number, chapter in enumerate(story.chapters, 1):
        for at, step in enumerate(chapter.steps, 1):
            yield f"{file}, chapter {number} ({chapter.title}), step {at}", step


def _node_of(step: Step) -> str:
    match step:
        case Order():
            return step.order.split()[0]
        case Kill(kill=node) | Struck(struck=node) | Stop(stop=node) | Start(start=node):
            return node
    return ""


def verb(step: Step) -> str:
    return type(step).__name__.lower()


def filled(step: Step, variables: Mapping[str, str]) -> Step:
    """With its variables replaced; those that it keeps itself stay for later."""
    later = {name: f"${{{name}}}" for name in step.keep} if isinstance(step, Wait) else {}
    plain = facts.filled(msgspec.to_builtins(step), {**later, **variables, **later})
    return msgspec.convert(plain, type(step))
