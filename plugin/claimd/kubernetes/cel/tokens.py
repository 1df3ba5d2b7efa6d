"""The lexer: it splits an expression into tokens and resolves the escapes of literals."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import CompileError

# One escape in a literal; a literal without escapes (raw) and one with them.
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
    r"(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"
    r"|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])|(?P<int>0x[0-9a-fA-F]+|[0-9]+)"
)
_TOKEN = re.compile(
    rf"(?P<space>[\t \r\n\f]+|//[^\n]*)|(?P<bytes>[bB]{_STRING})|(?P<string>{_STRING})|{_NUMBER}"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<quoted>`[A-Za-z0-9_.\-/ ]+`)"
    r"|(?P<operator>==|!=|<=|>=|&&|\|\||[<>\[\]{}().,\-!?:+*/%])",
    re.DOTALL,
)
# The characters that a letter behind a backslash stands for. Quotes and the backslash stand for
# themselves.
_SIMPLE = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
_SIMPLE |= {character: character for character in "\"'\\?`"}
_ESCAPED = re.compile(
    r"\\(?:([0-3][0-7][0-7])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A token. `kind` is name, quoted, int, uint, float, string, bytes, end, or the operator itself.

    A quoted token is the name of a field in backticks. `value` is the value of a string or bytes
    literal.
    """

    kind: str
    text: str
    position: int
    value: str | bytes = ""


def tokenize(expression: str) -> list[Token]:
    """Returns all tokens, with one of the kind "end" last.

    Raises CompileError where the text is no token.
    """
    read: list[Token] = []
    position = 0
    while position < len(expression):
        match = _TOKEN.match(expression, position)
        if not match:
            raise CompileError(f"unexpected {expression[position]!r}", expression, position)

        kind, text = match.lastgroup or "", match.group()
        if kind == "operator":
            read.append(Token(text, text, position))
        elif kind in ("string", "bytes"):
            read.append(Token(kind, text, position, _value(kind, text, expression, position)))
        elif text == "in":
            read.append(Token("in", text, position))
        elif kind != "space":
            read.append(Token(kind, text, position))
        position = match.end()

    read.append(Token("end", "", position))
    return read


def _value(kind: str, text: str, expression: str, position: int) -> str | bytes:
    """Returns the value of a literal, without prefix and quotes and with its escapes resolved."""
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
    return _ESCAPED.sub(lambda escape: _character(escape, expression, position), text)


def _character(escape: re.Match[str], expression: str, position: int) -> str:
    octal, hexadecimal, short, long, simple = escape.groups()
    if simple:
        return _SIMPLE[simple]
    code = int(octal, 8) if octal else int(hexadecimal or short or long, 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise CompileError(f"{escape.group()} is no Unicode character", expression, position)
    return chr(code)


def _bytes(text: str, expression: str, position: int) -> bytes:
    content, end = bytearray(), 0
    for escape in _ESCAPED.finditer(text):
        content += text[end : escape.start()].encode("utf-8", "surrogatepass")
        end = escape.end()
        octal, hexadecimal, short, long, simple = escape.groups()
        if short or long:
            raise CompileError(f"{escape.group()} is not for bytes: use \\x", expression, position)
        if simple:
            content += _SIMPLE[simple].encode()
        elif octal:
            content.append(int(octal, 8))
        else:
            content.append(int(hexadecimal, 16))

    content += text[end:].encode("utf-8", "surrogatepass")
    return bytes(content)
