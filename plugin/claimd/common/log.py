"""Logs: one JSON object per line, or plain text on a terminal.

A line carries the operation id of the call that it belongs to. All modules use standard logging
with `logging.getLogger(__name__)`.
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

# Eight hex digits shared by all lines of one call, including the work that goes on after its reply.
operation: contextvars.ContextVar[str] = contextvars.ContextVar("operation", default="")

# The fields of every record. All other fields come from `extra`.
_STANDARD_FIELDS = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

# Place in the code, thread and process are not logged. To find them out would add a fifth to the
# cost of a line.
logging._srcfile = None
logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def begin() -> str:
    """Starts an operation and returns its id.

    All lines that this task and its children write from now on carry the id.
    """
    identity = os.urandom(4).hex()
    operation.set(identity)
    return identity


def set_up(level: str, form: str, stream: TextIO | None = None) -> None:
    """Sends all logs of this level and above to the stream; by default to standard error.

    `form` is json, text, or auto, which means text if the stream is a terminal. May be repeated: the
    last call counts.
    """
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    as_text = form == "text" or (form == "auto" and stream.isatty())
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())

    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _extra(record: logging.LogRecord) -> dict[str, object]:
    """Returns the caller's extra fields and the operation."""
    extra = {key: value for key, value in vars(record).items() if key not in _STANDARD_FIELDS}
    if current := operation.get():
        extra["op"] = current
    return extra


class JsonFormatter(logging.Formatter):
    """Formats records for machines: each is one line, even if the message has several."""

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
    """Formats records for people: local time, level, message and extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        extra = "".join(f" {key}={value}" for key, value in _extra(record).items())
        text = plain_text.one_line(f"{record.getMessage()}{extra}")
        line = f"{clock}.{int(record.msecs):03d} {record.levelname.lower():7} {text}"
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return line
