"""Why an expression is false for a device: the parts that decided it, as data and as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .syntax import Node

if TYPE_CHECKING:
    from .device import Device
    from .program import Program


@dataclass(frozen=True)
class Explanation:
    text: str


def explain(program: Program, device: Device) -> Explanation:
    return Explanation("")


def is_cheap(root: Node) -> bool:
    return False
