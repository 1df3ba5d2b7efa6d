"""CEL as Kubernetes has it for device selectors: compile an expression once, match it against
devices, explain a no.

The public surface is what this module names. Nothing here knows claims, classes or pools.
"""

from __future__ import annotations

from .device import Device, Version
from .errors import CompileError, EvalError
from .program import Derivation, Program, compile, compile_derived
from .trace import Explanation

__all__ = [
    "compile",
    "compile_derived",
    "Program",
    "Derivation",
    "Device",
    "Version",
    "Explanation",
    "CompileError",
    "EvalError",
]
