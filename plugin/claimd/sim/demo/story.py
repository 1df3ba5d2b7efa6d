"""Stories as data: nodes, and chapters of steps, read from YAML and checked before the start.

The narrator performs the steps. docs/stories.md explains how to write a story.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import shlex
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec

from claimd.common import errors
from claimd.kubernetes.api import text
from claimd.node import config
from claimd_devices import fake, faults

from ..apiserver.rules import profile
from . import facts

DEFAULT = "tour"
_SHIPPED = resources.files(__package__) / "stories"


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a story; unknown keys are errors, so that misspelled keys are found."""


# ---------------------------------------------------------------- steps


class Say(_Strict, frozen=True):
    """Prints a text."""

    say: str


class Apply(_Strict, frozen=True):
    """Applies objects as `kubectl apply` does."""

    apply: list[dict[str, Any]]
    namespace: str = "default"


class Delete(_Strict, frozen=True):
    """Deletes an object."""

    delete: str  # KIND/NAME
    namespace: str = "default"


class Wait(_Strict, frozen=True):
    """Waits until `count` objects that match `where` satisfy `until`, or until they are gone."""

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


class Fault(_Strict, frozen=True):
    """Injects a fault into a fake GPU: NODE FAULT DEVICE [VALUE], as in `claimd fake fault`."""

    fault: str


class Kill(_Strict, frozen=True):
    """Kills a node's `claimd run` with SIGKILL, at once or in the middle of the next prepare."""

    kill: str  # NODE
    during: Literal["", "prepare"] = ""


class Killed(_Strict, frozen=True):
    """Waits for the kill of a `kill` step with `during`."""

    killed: str  # NODE


class Stop(_Strict, frozen=True):
    """Ends a node's `claimd run` with SIGTERM, and keeps it stopped."""

    stop: str  # NODE


class Start(_Strict, frozen=True):
    """Starts a node's stopped `claimd run`."""

    start: str  # NODE


class Logs(_Strict, frozen=True):
    """Shows the output of a pod's container."""

    logs: str  # POD
    namespace: str = "default"
    container: str = ""  # required if the pod has several
    contains: list[str] = []
    lines: str = ""  # a regular expression for the lines to show; empty: all
    within: float = 20.0


class Run(_Strict, frozen=True):
    """Runs a command of claimd with the cluster's kubeconfig."""

    run: str
    contains: list[str] = []
    lines: str = ""
    exits: int = 0
    within: float = 30.0


class Show(_Strict, frozen=True):
    """Shows a part of an object as YAML."""

    show: str  # KIND/NAME
    namespace: str = "default"
    path: str = ""


Step = Say | Apply | Delete | Wait | Fault | Kill | Killed | Stop | Start | Logs | Run | Show
STEPS: dict[str, type[Step]] = {
    "say": Say,
    "apply": Apply,
    "delete": Delete,
    "wait": Wait,
    "fault": Fault,
    "kill": Kill,
    "killed": Killed,
    "stop": Stop,
    "start": Start,
    "logs": Logs,
    "run": Run,
    "show": Show,
}
# The keywords of steps in stories of earlier releases.
_OLD_WORDS = {"order": "fault", "struck": "killed"}


def verb(step: Step) -> str:
    """Returns the keyword of the step."""
    return type(step).__name__.lower()


# ---------------------------------------------------------------- stories


class Chapter(msgspec.Struct, frozen=True, kw_only=True):
    """A chapter. It is told only if the feature gate `needs` is on and `lacks` is off."""

    title: str
    steps: tuple[Step, ...]
    needs: str = ""
    lacks: str = ""
    left_out: str = ""  # why the chapter is skipped


# As in a file for --config.
Settings = dict[str, str | int | float | bool | list[str]]


class Node(_Strict, frozen=True):
    name: str
    gpus: list[str]  # words as `claimd fake write` takes them
    settings: Settings = {}


class Story(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    about: str
    nodes: tuple[Node, ...]
    settings: Settings  # of every node's `claimd run`
    chapters: tuple[Chapter, ...]
    needs: str = ""  # a feature gate that the story needs


class _Document(_Strict, frozen=True):
    title: str
    nodes: list[Node]
    needs: str = ""
    about: str = ""
    settings: Settings = {}
    chapters: list[dict[str, Any]] = []


def names() -> list[str]:
    """Returns the names of the stories that come with claimd."""
    files = [file.name for file in _SHIPPED.iterdir()]
    return sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml"))


def load(which: str) -> Story:
    """Reads a story by name or file. Raises UsageError if it is invalid."""
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
    """Parses a story. Raises UsageError for anything that no run of the story could do."""
    try:
        document = msgspec.convert(text.load(written), _Document)
        _check_nodes(document)
        _check_gate(document.needs)
    except ValueError as error:  # msgspec's too
        raise errors.UsageError(f"{file}: {error}") from error

    chapters = []
    for number, chapter in enumerate(document.chapters, 1):
        chapters.append(_parse_chapter(chapter, f"{file}, chapter {number}"))
    story = Story(
        title=document.title,
        about=document.about,
        nodes=tuple(document.nodes),
        settings=document.settings,
        chapters=tuple(chapters),
        needs=document.needs,
    )
    _check_names(story, file)
    return story


def fit(story: Story, release: str) -> Story:
    """Returns the story as it is told on this release of Kubernetes.

    Raises UsageError if the release lacks a feature that the story needs.
    """
    gates = profile.FEATURE_GATES[release]
    if story.needs and story.needs not in gates:
        raise errors.UsageError(
            f"the story {story.title!r} needs the feature {story.needs}, which is off in "
            f"Kubernetes {release}: {_releases_with(story.needs)} has it"
        )

    chapters = []
    for chapter in story.chapters:
        if chapter.needs and chapter.needs not in gates:
            why = f"Kubernetes {release} has {chapter.needs} off"
            chapters.append(msgspec.structs.replace(chapter, left_out=why))
        elif not chapter.lacks or chapter.lacks not in gates:
            chapters.append(chapter)
    return msgspec.structs.replace(story, chapters=tuple(chapters))


def _releases_with(gate: str) -> str:
    releases = [release for release, gates in profile.FEATURE_GATES.items() if gate in gates]
    return " or ".join(releases)


def _check_gate(gate: str) -> None:
    known = sorted(frozenset().union(*profile.FEATURE_GATES.values()))
    if gate and gate not in known:
        raise ValueError(f"no release here has the feature {gate!r}; there are {', '.join(known)}")


def _parse_chapter(chapter: dict[str, Any], place: str) -> Chapter:
    title, steps = chapter.get("title"), chapter.get("steps")
    needs, lacks = chapter.get("needs", ""), chapter.get("lacks", "")
    known_keys = {"title", "steps"} <= set(chapter) <= {"title", "steps", "needs", "lacks"}
    if not known_keys or not isinstance(title, str) or not isinstance(steps, list):
        keys = ", ".join(map(str, chapter))
        raise errors.UsageError(f"{place}: expected a title and a list of steps, got {keys}")
    try:
        for gate in (needs, lacks):
            _check_gate(gate)
    except ValueError as error:
        raise errors.UsageError(f"{place}: {error}") from error

    parsed = []
    for number, step in enumerate(steps, 1):
        parsed.append(_parse_step(step, f"{place} ({title}), step {number}"))
    return Chapter(title=title, steps=tuple(parsed), needs=needs, lacks=lacks)


def _parse_step(written: Any, place: str) -> Step:
    if not isinstance(written, dict):
        raise errors.UsageError(
            f"{place}: expected keys and values, got {facts.format_value(written)}"
        )

    renamed = {_OLD_WORDS.get(key, key): value for key, value in written.items()}
    verbs = [key for key in renamed if key in STEPS]
    if len(verbs) != 1:
        raise errors.UsageError(f"{place}: {_describe_verbs(written, verbs)}")
    try:
        step = msgspec.convert(renamed, STEPS[verbs[0]])
        _check(step)
    except ValueError as error:
        raise errors.UsageError(f"{place} ({verbs[0]}): {error}") from error
    return step


def _describe_verbs(written: dict[Any, Any], verbs: list[str]) -> str:
    """Describes why the step has no keyword, or several."""
    problem = "several steps in one" if verbs else "unknown step"
    hint = f"known are {', '.join(STEPS)}"
    for key in written:
        close = difflib.get_close_matches(str(key), STEPS, n=1)
        if close:
            hint = f"did you mean {close[0]}?"
            break
    return f"{problem}: {', '.join(map(str, written))}; {hint}"


# ---------------------------------------------------------------- checks


def _check(step: Step) -> None:
    """Raises ValueError for anything that no run of the step could do."""
    match step:
        case Wait():
            _check_wait(step)
        case Fault():
            words = step.fault.split()
            if not 3 <= len(words) <= 4 or words[1].partition("=")[0] not in faults.FAULTS:
                raise ValueError(
                    f"{step.fault!r} is no fault: expected NODE FAULT DEVICE [VALUE], "
                    f"with a fault of {', '.join(faults.FAULTS)}"
                )
        case Run() if shlex.split(step.run)[:1] != ["claimd"]:
            raise ValueError(f"{step.run!r} does not begin with claimd: stories run nothing else")
        case Delete(delete=name) | Show(show=name) if not all(name.partition("/")):
            raise ValueError(f"{name!r} is not KIND/NAME")
        case Apply():
            for obj in step.apply:
                _check_object(obj)
        case _:
            pass

    if isinstance(step, Show) and step.path:
        facts.find({}, step.path)
    if isinstance(step, Run | Logs):
        _check_pattern(step.lines)


def _check_wait(step: Wait) -> None:
    facts.checks(step.where)
    for path in step.keep.values():
        facts.find({}, path)
    if step.until == "gone":
        if step.keep:
            raise ValueError("what is gone cannot be kept")
    else:
        facts.checks(step.until)


def _check_object(obj: dict[str, Any]) -> None:
    """Checks the identity of the object; the API server checks the rest."""
    metadata = obj.get("metadata")
    typed = isinstance(obj.get("apiVersion"), str) and isinstance(obj.get("kind"), str)
    if not typed or not isinstance(metadata, dict):
        raise ValueError("an object has an apiVersion, a kind and metadata")
    for field in ("name", "namespace"):
        value = metadata.get(field, "")
        is_text = isinstance(value, str)
        if not is_text:
            raise ValueError(
                f"metadata.{field} of an object is text, got {facts.format_value(value)}"
            )


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        shown = facts.format_value(pattern)
        raise ValueError(f"lines: {shown!r} is no regular expression: {error}") from error


def _check_nodes(document: _Document) -> None:
    if not document.nodes:
        raise ValueError("a story needs a node")
    used = set(document.settings)
    _check_commas(document.settings)
    for node in document.nodes:
        fake.parse(node.gpus)
        used.update(node.settings)
        _check_commas(node.settings)

    known = {config.key_of(setting.name) for setting in dataclasses.fields(config.Config)}
    for name in sorted(used - known):
        raise ValueError(f"`claimd run` has no setting {name!r}")
    node_names = [node.name for node in document.nodes]
    if len(set(node_names)) != len(node_names):
        raise ValueError("two nodes have the same name")


def _check_commas(settings: Settings) -> None:
    for name, value in settings.items():
        for item in value if isinstance(value, list) else ():
            if "," in item:
                raise ValueError(f"{name}: {item!r} has a comma: write two entries")


def as_variables(settings: Settings) -> dict[str, str]:
    """Formats the settings as environment variables have them."""
    variables = {}
    for name, value in settings.items():
        match value:
            case bool():
                variables[name] = str(value).lower()
            case list():
                variables[name] = ",".join(value)
            case _:
                variables[name] = str(value)
    return variables


def _check_names(story: Story, file: str) -> None:
    """Checks that nodes exist, and that variables are kept before they are used.

    A variable of a chapter that may be left out is valid only in that chapter.
    """
    kept: set[str] = set()
    in_chapter: set[str] = set()
    before: Chapter | None = None
    nodes = {node.name for node in story.nodes}
    for place, chapter, step in _steps_with_places(story, file):
        if chapter is not before:
            before, in_chapter = chapter, set()
        unknown = facts.variables_in(msgspec.to_builtins(step)) - kept - in_chapter
        if isinstance(step, Wait):
            unknown -= set(step.keep)  # its own `tell` may use them
            in_chapter |= set(step.keep)
            if not chapter.needs and not chapter.lacks:
                kept |= set(step.keep)
        if unknown:
            names_ = ", ".join(sorted(unknown))
            raise errors.UsageError(f"{place}: nothing was kept as {names_} before")

        node = _node_of(step)
        if node and not facts.variables_in(node) and node not in nodes:
            raise errors.UsageError(
                f"{place}: no node {node!r}; the story has {', '.join(sorted(nodes))}"
            )


def _steps_with_places(story: Story, file: str) -> Iterator[tuple[str, Chapter, Step]]:
    for number, chapter in enumerate(story.chapters, 1):
        for position, step in enumerate(chapter.steps, 1):
            place = f"{file}, chapter {number} ({chapter.title}), step {position}"
            yield place, chapter, step


def _node_of(step: Step) -> str:
    match step:
        case Fault():
            return step.fault.split()[0]
        case Kill(kill=node) | Killed(killed=node) | Stop(stop=node) | Start(start=node):
            return node
    return ""


def fill(step: Step, variables: Mapping[str, str]) -> Step:
    """Replaces the step's variables, except those that the step itself keeps."""
    own: dict[str, str] = {}
    if isinstance(step, Wait):
        own = {name: f"${{{name}}}" for name in step.keep}
    plain = facts.fill(msgspec.to_builtins(step), {**variables, **own})
    return msgspec.convert(plain, type(step))
