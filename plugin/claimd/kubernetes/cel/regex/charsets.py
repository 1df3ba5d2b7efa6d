"""Sets of characters as Python writes them between brackets, for the classes that Go has."""

from __future__ import annotations

import re

_NAMED = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_PERL = {"d": "0-9", "s": r"\t\n\f\r ", "w": "0-9A-Za-z_"}
# Unicode's general categories. Scripts such as Greek are not known here.
_CATEGORIES = (
    *("Any", "C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn"),
    *("N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm"),
    *("So", "Z", "Zl", "Zp", "Zs"),
)
_BY_PLAIN_NAME = {name.lower(): name for name in _CATEGORIES}


def escaped(code: int) -> str:
    return f"\\U{code:08x}"


def perl_class(letter: str) -> str:
    r"""The whole set of \d or \D."""
    members = _PERL[letter.lower()]
    return f"[^{members}]" if letter.isupper() else f"[{members}]"


def members_of_perl_class(letter: str) -> str:
    r"""What \d or \D adds to a set."""
    members = _PERL[letter.lower()]
    return _complement(members) if letter.isupper() else members


def named_class(name: str, *, negative: bool) -> str | None:
    """What [:alpha:] adds to a set; None for an unknown name."""
    members = _NAMED.get(name)
    if members is None:
        return None
    return _complement(members) if negative else members


def category(name: str) -> str | None:
    """The category's own name; None for an unknown one. Go looks at letters alone, of any case."""
    return _BY_PLAIN_NAME.get(re.sub("[-_ ]", "", name).lower())


def _complement(members: str) -> str:
    """All other characters; the members are ASCII."""
    inside = re.compile(f"[{members}]")
    ranges: list[str] = []
    start = 0
    for code in (*filter(lambda code: inside.match(chr(code)), range(128)), 0x110000):
        if start < code:
            ranges.append(f"{escaped(start)}-{escaped(code - 1)}")
        start = code + 1
    return "".join(ranges)
