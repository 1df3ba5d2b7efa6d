"""Functions of strings, which count characters rather than bytes."""

from __future__ import annotations

import re
import string

from ..declarations import Implementation
from ..errors import EvalError
from . import formatting, regex

_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006"
    "\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
# Letters that are not ASCII do not change.
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_UPPER = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)


def _range(index: int) -> EvalError:
    return EvalError(f"index {index} is out of range")


def char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _range(index)
    return text[index : index + 1]


def index_of(text: str, wanted: str, start: int = 0) -> int:
    if start < 0:
        raise _range(start)
    if not wanted:
        return min(start, len(text))
    return text.find(wanted, start)


def last_index_of(text: str, wanted: str) -> int:
    return text.rfind(wanted) if wanted else len(text)


def last_index_from(text: str, wanted: str, start: int) -> int:
    if start < 0:
        raise _range(start)
    if not wanted:
        return min(start, len(text))
    if start >= len(text):
        return -1
    return text.rfind(wanted, 0, start + len(wanted))


def lower(text: str) -> str:
    return text.translate(_LOWER)


def upper(text: str) -> str:
    return text.translate(_UPPER)


def replace(text: str, old: str, new: str, limit: int = -1) -> str:
    return text.replace(old, new, limit)


def split(text: str, separator: str, limit: int = -1) -> list[str]:
    """Returns at most `limit` parts. The last one is the rest of the text.

    A negative limit stands for no limit. Without a separator each character is a part.
    """
    if limit == 0:
        return []
    if separator:
        return text.split(separator, limit - 1 if limit > 0 else -1)

    characters = list(text)
    if 0 < limit < len(characters):
        return [*characters[: limit - 1], "".join(characters[limit - 1 :])]
    return characters


def substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise EvalError(f"the substring from {start} to {end} ends before it starts")
    for index in (start, end if end is not None else start):
        if not 0 <= index <= len(text):
            raise _range(index)
    return text[start:end]


def join(texts: list[str], separator: str = "") -> str:
    for text in texts:
        if type(text) is not str:
            raise EvalError("join() takes strings alone")
    return separator.join(texts)


def quote(text: str) -> str:
    escaped = re.sub(r'[\a\b\f\n\r\t\v\\"]', lambda match: formatting.ESCAPES[match.group()], text)
    return f'"{escaped}"'


TABLE: dict[str, Implementation] = {
    "contains: string.(string) -> bool": lambda text, part: part in text,
    "startsWith: string.(string) -> bool": str.startswith,
    "endsWith: string.(string) -> bool": str.endswith,
    "matches: (string, string) -> bool": regex.matches,
    "matches: string.(string) -> bool": regex.matches,
    "find: string.(string) -> string": regex.find,
    "findAll: string.(string) -> list<string>": regex.find_all,
    "findAll: string.(string, int) -> list<string>": regex.find_all,
    "charAt: string.(int) -> string": char_at,
    "indexOf: string.(string) -> int": index_of,
    "indexOf: string.(string, int) -> int": index_of,
    "lastIndexOf: string.(string) -> int": last_index_of,
    "lastIndexOf: string.(string, int) -> int": last_index_from,
    "lowerAscii: string.() -> string": lower,
    "upperAscii: string.() -> string": upper,
    "replace: string.(string, string) -> string": replace,
    "replace: string.(string, string, int) -> string": replace,
    "split: string.(string) -> list<string>": split,
    "split: string.(string, int) -> list<string>": split,
    "substring: string.(int) -> string": substring,
    "substring: string.(int, int) -> string": substring,
    "trim: string.() -> string": lambda text: text.strip(_SPACE),
    "join: list<string>.() -> string": join,
    "join: list<string>.(string) -> string": join,
    "strings.quote: (string) -> string": quote,
    "format: string.(list<dyn>) -> string": formatting.apply,
}
