"""All targets, by name, with their examples and words."""

from __future__ import annotations

import random
from collections.abc import Sequence

from . import (
    answers,
    apiserver,
    documents,
    inputs,
    node,
    notations,
    pages,
    reach,
    requests,
    runtimes,
    streams,
    target,
)

CORPUS = target.ROOT / "tests/cases/fuzz"
TARGETS = answers.TARGETS | requests.TARGETS | documents.TARGETS | notations.TARGETS
TARGETS |= node.TARGETS | runtimes.TARGETS | streams.TARGETS | apiserver.TARGETS
TARGETS |= pages.TARGETS


def examples(name: str) -> list[bytes]:
    """Those that are made, and those that were found."""
    examples_ = [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
    return [*TARGETS[name].examples(), *examples_]


def words(name: str) -> list[bytes]:
    """Those of the target, and those that its code knows."""
    chosen = TARGETS[name]
    return [*chosen.words, *sorted(reach.words(chosen.parts))]


def make_inputs(name: str, dice: random.Random, chosen: Sequence[bytes]) -> inputs.Inputs:
    """Inputs for a target, made of the examples that were chosen."""
    fed = TARGETS[name]
    return inputs.Inputs(dice, chosen, words(name), longest=fed.longest, documents=fed.documents)
