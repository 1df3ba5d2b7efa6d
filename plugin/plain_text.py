"""Text from strangers, for places where a character can do harm: a line of a log, a CDI spec, a table.

What a claim, a device tree or an API server says is somebody's text. A control character in it could forge a second line,
steer a terminal, or make a file that nobody can read.
"""

from __future__ import annotations

import re

# Everything that YAML 1.2 does not take as it is, since container runtimes read CDI specs, also those in JSON, as YAML; and
# what ends a line for some readers: next line, line and paragraph separators.
_STRANGE = re.compile(
    "[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


def strange(text: str) -> str | None:
    """The first character that cannot stand in a file for others; None if there is none."""
    match = _STRANGE.search(text)
    return match[0] if match else None


def one_line(text: str) -> str:
    """The text on one line, with control characters and what turns text around shown as escapes."""
    return _STEERING.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def json_escaped(document: str) -> str:
    """JSON that means the same, without a character that steers a terminal as it is."""
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", document)
