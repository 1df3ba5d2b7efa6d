"""CEL as Kubernetes has it: compile an expression once, match it against devices, explain a no.

What this module names is for selectors of devices; `documents` has expressions over any documents,
as admission policies use them. Nothing here knows claims, classes or pools.
"""

from __future__ import annotations

from .device import Device, Version
from .errors import CompileError, EvalError
from .explanation import Explanation, Mismatch
from .program import Derivation, Program, compile, compile_derived

__all__ = [
    "compile",
    "compile_derived",
    "Program",
    "Derivation",
    "Device",
    "Version",
    "Explanation",
    "Mismatch",
    "CompileError",
    "EvalError",
]
