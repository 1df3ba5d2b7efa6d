"""Text to tokens, with the escapes of string and bytes literals resolved. No grammar."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import CompileError

_ESCAPE = (
    r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
)
_RAW = r"[rR](?:\"\"\".*?\"\"\"|'''.*?'''|\"[^\"\n\r]*\"|'[^'\n\r]*')"
_COOKED = (
    rf"\"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\"|'''(?:{_ESCAPE}|[^\\])*?'''"
    rf"|\"(?:{_ESCAPE}|[^\\\"\n\r])*\"|'(?:{_ESCAPE}|[^\\'\n\r])*'"
)
_STRING = f"(?:{_RAW}|{_COOKED})"
_NUMBER = (
    r"(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])|(?P<int>0x[0-9a-fA-F]+|[0-9]+)"
)
_TOKEN = re.compile(
    rf"(?P<space>[\t \r\n\f]+|//[^\n]*)|(?P<bytes>[bB]{_STRING})|(?P<string>{_STRING})|{_NUMBER}"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<quoted>`[A-Za-z0-9_.\-/ ]+`)"
    r"|(?P<operator>==|!=|<=|>=|&&|\|\||[<>\[\]{}().,\-!?:+*/%])",
    re.DOTALL,
)
_SIMPLE = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    '"': '"', "'": "'", "\\": "\\", "?": "?", "`": "`",
}  # fmt: skip
_ESCAPED = re.compile(
    r"\\(?:([0-3][0-7][0-7])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    # name, quoted (a field's name in backticks), int, uint, float, string, bytes, end, or the
    # operator itself
    kind: str
    text: str
    position: int
    value: str | bytes = ""


def tokens(expression: str) -> list[Token]:
    found: list[Token] = []
    position = 0
    while position < len(expression):
        match = _TOKEN.match(expression, position)
        if not match:
            raise CompileError(f"unexpected {expression[position]!r}", expression, position)
        kind, text = match.lastgroup or "", match.group()
        if kind == "operator":
            found.append(Token(text, text, position))
        elif kind in ("string", "bytes"):
            found.append(Token(kind, text, position, _value(kind, text, expression, position)))
        elif kind != "space":
            found.append(Token("in" if text == "in" else kind, text, position))
        position = match.end()
    found.append(Token("end", "", position))
    return found


def _value(kind: str, text: str, expression: str, position: int) -> str | bytes:
    if kind == "bytes":
        text = text[1:]
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    quote = 3 if text[:3] in ('"""', "'''") else 1
    # Go reads a carriage return before a newline as a newline.
    text = text[quote:-quote].replace("\r\n", "\n").replace("\r", "\n")
    if kind == "bytes":
        return text.encode("utf-8", "surrogatepass") if raw else _bytes(text, expression, position)
    if raw:
        return text
    return _ESCAPED.sub(lambda found: _character(found, expression, position), text)


def _character(found: re.Match[str], expression: str, position: int) -> str:
    octal, hexadecimal, short, long, simple = found.groups()
    if simple:
        return _SIMPLE[simple]
    code = int(octal, 8) if octal else int(hexadecimal or short or long, 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise CompileError(f"{found.group()} is no Unicode character", expression, position)
    return chr(code)


def _bytes(text: str, expression: str, position: int) -> bytes:
    made, end = bytearray(), 0
    for found in _ESCAPED.finditer(text):
        made += text[end : found.start()].encode("utf-8", "surrogatepass")
        end = found.end()
        octal, hexadecimal, short, long, simple = found.groups()
        if short or long:
            raise CompileError(f"{found.group()} is not for bytes: use \\x", expression, position)
        if simple:
            made += _SIMPLE[simple].encode()
        else:
            made.append(int(octal, 8) if octal else int(hexadecimal, 16))
    return bytes(made + text[end:].encode("utf-8", "surrogatepass"))
