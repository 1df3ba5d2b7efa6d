"""Distinguishes errors of claimd or of the node from errors of the hardware that was read.

A file that is missing or broken says something about a GPU. A lack of descriptors, memory or
threads says nothing about any GPU: then the look has failed, and the facts that were known before
stay valid.
"""

from __future__ import annotations

import errno
import os

# Opening a file, reading a link or listing a folder fails with these because of the process or the
# node, never because of the file.
_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN})


class LookFailedError(Exception):
    """The hardware could not be looked at. The message says what failed and why.

    It is no OSError, so that code which handles a broken file does not handle it by mistake.
    """


def check(path: str, error: OSError) -> None:
    """Raises LookFailedError if the error is about claimd or the node, not about the path."""
    if error.errno is not None and error.errno in _OURS:
        raise LookFailedError(f"{path}: {os.strerror(error.errno)}") from error
