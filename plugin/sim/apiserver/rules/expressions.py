"""Selectors of devices: is the expression one, and may it cost what it costs?"""

from __future__ import annotations

import re
from functools import lru_cache

from .... import cel
from ....api import limits
from ....api.document import Document
from .field_errors import FieldErrors


def check_selectors(errors: FieldErrors, selectors: list[Document] | None, path: str) -> None:
    if errors.too_many(path, len(selectors or ()), limits.SELECTORS, declared=True):
        return
    for index, selector in enumerate(selectors or ()):
        below = f"{path}[{index}].cel"
        if selector.get("cel") is None:
            errors.required(below)
        else:
            check(errors, selector["cel"].get("expression", ""), f"{below}.expression")


def check(errors: FieldErrors, expression: str, path: str) -> None:
    if len(expression.encode()) > limits.EXPRESSION:
        errors.too_long(path, limits.EXPRESSION)
        return
    problem = problem_of(expression)
    if problem == TOO_COMPLEX:
        errors.forbidden(path, TOO_COMPLEX)
    elif problem:
        errors.invalid(path, expression, problem)


NO_SELECTOR = re.compile("a selector must be true or false.*, this is (.*)")
WORDS = {  # of the compiler here, and of the server's, where they say the same
    r"unknown name (\w+):.*": r"undeclared reference to '\1' (in container '')",
    r"device has no field (\w+):.*": r"undefined field '\1'",
}
TOO_COMPLEX = "too complex, exceeds cost limit"


@lru_cache(maxsize=1024)
def problem_of(expression: str) -> str:
    """Empty if there is none. The compiler's own words are ours; where they stand is shown as the
    server shows it.
    """
    try:
        cel.compile(expression, new=True)
    except cel.CompileError as error:
        if error.reason.startswith("too complex"):
            return TOO_COMPLEX
        if found := NO_SELECTOR.match(error.reason):
            return f"must evaluate to bool or the unknown type, not {found[1]}"
        for ours, theirs in WORDS.items():
            error.reason = re.sub(ours, theirs, error.reason)
        lines = expression.split("\n")
        line = lines[error.line - 1]
        said = f"compilation failed: ERROR: <input>:{error.line}:{error.column}: {error.reason}"
        return f"{said}\n | {line}\n | {'.' * (error.column - 1)}^" if line else said
    return ""
