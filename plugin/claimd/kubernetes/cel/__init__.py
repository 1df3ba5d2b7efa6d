"""CEL with the functions, limits and errors of Kubernetes' API server and scheduler.

An expression is compiled once, matched against any number of devices, and explained where it is not
true. The names of this module are for selectors of devices. The module `documents` evaluates
expressions over other documents, as admission policies use them. This package knows no claims,
classes or pools.

Start reading in `program`, which leads an expression through the parser, the checker and the
closures that evaluate it.
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
