"""Logs: one JSON line each, or plain text on a terminal.

A line carries the operation id of the call that it belongs to. Standard logging underneath: any
module says `logging.getLogger(__name__)`. What to log is decided there, not here.
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

# What any record has; the rest was given by `extra`.
_STANDARD_FIELDS = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

# Nobody is shown where in the code a line was written, nor by which thread: it takes a fifth of what
# a line costs to find out.
logging._srcfile = None
logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def begin() -> str:
    """Starts an operation; its id.

    Every line that this task and its children write from now on carries it.
    """
    identity = os.urandom(4).hex()
    operation.set(identity)
    return identity


def set_up(level: str, form: str, stream: TextIO | None = None) -> None:
    """Sends all logs of this level and above to the stream, standard error if none is given.

    `form` is json, text, or auto: text if the stream is a terminal. May be repeated: the last call
    counts.
    """
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    as_text = form == "text" or (form == "auto" and stream.isatty())
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())

    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _extra(record: logging.LogRecord) -> dict[str, object]:
    """What the caller gave beside the message, and the operation."""
    extra = {key: value for key, value in vars(record).items() if key not in _STANDARD_FIELDS}
    if current := operation.get():
        extra["op"] = current
    return extra


class JsonFormatter(logging.Formatter):
    """For machines: the whole record in one line, also if its message has several."""

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
    """For people: local time, level, message, and what goes with it."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        extra = "".join(f" {key}={value}" for key, value in _extra(record).items())
        text = plain_text.one_line(f"{record.getMessage()}{extra}")
        line = f"{clock}.{int(record.msecs):03d} {record.levelname.lower():7} {text}"
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return line
