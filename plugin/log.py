"""Logs: one JSON line each, or plain text on a terminal, with the operation id of the call that a
line belongs to.

Standard logging underneath: any module says `logging.getLogger(__name__)`. What to log is decided
there, not here.
"""

from __future__ import annotations

import contextvars
import logging
import os
import sys
import time
from typing import TextIO

import msgspec

from . import plain_text, timestamps

# Eight hex digits shared by all lines of one call, also those written by the work that goes on
# after its reply.
operation: contextvars.ContextVar[str] = contextvars.ContextVar("operation", default="")

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def begin() -> str:
    """Starts an operation: every line that this task and its children write from now on carries the
    id.
    """
    operation.set(identity := os.urandom(4).hex())
    return identity


def set_up(level: str, form: str, stream: TextIO | None = None) -> None:
    """`form` is json, text, or auto (text if the stream is a terminal)."""
    stream = sys.stderr if stream is None else stream
    sink = logging.StreamHandler(stream)
    plain = form == "text" or (form == "auto" and stream.isatty())
    sink.setFormatter(TextFormatter() if plain else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [sink]
    root.setLevel(level.upper())


def _extra(record: logging.LogRecord) -> dict[str, object]:
    found = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    if current := operation.get():
        found["op"] = current
    return found


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": timestamps.rfc3339(record.created, digits=3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            line["stack"] = self.formatException(record.exc_info)
        return plain_text.json_escaped(msgspec.json.encode(line, enc_hook=str).decode())


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        extra = "".join(f" {key}={value}" for key, value in _extra(record).items())
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        said = plain_text.one_line(f"{record.getMessage()}{extra}")
        line = f"{clock}.{int(record.msecs):03d} {record.levelname.lower():7} {said}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line
