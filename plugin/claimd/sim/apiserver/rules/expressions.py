"""Validation of device selectors: the expression must compile and stay below the cost limit."""

from __future__ import annotations

import re
from functools import lru_cache

from claimd.kubernetes import cel
from claimd.kubernetes.api import limits
from claimd.kubernetes.api.document import Document

from .field_errors import FieldErrors

TOO_COMPLEX = "too complex, exceeds cost limit"

# Messages of our CEL compiler, and the server's messages with the same meaning.
NOT_BOOLEAN = re.compile("a selector must be true or false.*, this is (.*)")
SERVER_WORDS = {
    r"unknown name (\w+):.*": r"undeclared reference to '\1' (in container '')",
    r"device has no field (\w+):.*": r"undefined field '\1'",
}


def validate_selectors(errors: FieldErrors, selectors: list[Document] | None, path: str) -> None:
    selectors = selectors or []
    if errors.too_many(path, len(selectors), limits.SELECTORS, declared=True):
        return
    for index, selector in enumerate(selectors):
        cel_path = f"{path}[{index}].cel"
        if selector.get("cel") is None:
            errors.required(cel_path)
        else:
            validate(errors, selector["cel"].get("expression", ""), f"{cel_path}.expression")


def validate(errors: FieldErrors, expression: str, path: str) -> None:
    if len(expression.encode()) > limits.EXPRESSION:
        errors.too_long(path, limits.EXPRESSION)
        return
    problem = problem_of(expression)
    if problem == TOO_COMPLEX:
        errors.forbidden(path, TOO_COMPLEX)
    elif problem:
        errors.invalid(path, expression, problem)


@lru_cache(maxsize=1024)
def problem_of(expression: str) -> str:
    """Returns the reason why an expression does not compile; empty if it compiles.

    The place of an error has the form that the server uses. Most messages have other words than
    those of the server.
    """
    try:
        cel.compile(expression, new=True)
    except cel.CompileError as error:
        if error.reason.startswith("too complex"):
            return TOO_COMPLEX
        not_boolean = NOT_BOOLEAN.match(error.reason)
        if not_boolean:
            return f"must evaluate to bool or the unknown type, not {not_boolean[1]}"
        return compilation_failed(expression, error)
    return ""


def compilation_failed(expression: str, error: cel.CompileError) -> str:
    """Returns the message about a failed compilation, with the place of the error."""
    reason = error.reason
    for ours, theirs in SERVER_WORDS.items():
        reason = re.sub(ours, theirs, reason)
    where = f"<input>:{error.line}:{error.column}"
    message = f"compilation failed: ERROR: {where}: {reason}"
    line = expression.split("\n")[error.line - 1]
    if not line:
        return message
    return f"{message}\n | {line}\n | {'.' * (error.column - 1)}^"
