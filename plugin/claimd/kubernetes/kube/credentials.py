"""Bearer tokens from the configuration: a fixed token, or a file that somebody else renews.

A mistake that exists from the start raises UsageError. A failure that comes later fails only the
request that needed the token.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from claimd.common import errors as plugin_errors

from . import errors
from .client_config import Credential

log = logging.getLogger(__name__)

# Seconds until a token file is read again. The kubelet renews a token long before it expires.
REREAD_INTERVAL = 60.0


class StaticToken:
    """A bearer token that never changes. Empty for requests without a token."""

    def __init__(self, token: str = "") -> None:
        self._credential = Credential(token=bearer_token(token, "token"))

    async def get(self, refused: Credential | None = None) -> Credential:
        return self._credential


class TokenFile:
    """A bearer token in a file that somebody else renews, such as the kubelet.

    The file is read again from time to time, and when the server has refused the token. If it
    cannot be read then, the earlier token stays in use.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._credential: Credential | None = None
        self._reread_at = 0.0

    async def get(self, refused: Credential | None = None) -> Credential:
        current = self._credential
        if current is not None and current != refused and self._clock() < self._reread_at:
            return current

        try:
            return self.read()
        except plugin_errors.UsageError as error:
            if current is None:
                raise errors.Unauthorized(str(error)) from error

            # The old token may still be good, and the file is not read again for each request.
            log.warning("using the token from before: %s", error)
            self._reread_at = self._clock() + REREAD_INTERVAL
            return current

    def read(self) -> Credential:
        """Reads the token from the file. UsageError if the file holds no token."""
        token = bearer_token(read_file(self._path, "a bearer token"), str(self._path))
        if not token:
            raise plugin_errors.UsageError(f"{self._path} is empty; it should hold a bearer token")

        self._reread_at = self._clock() + REREAD_INTERVAL
        self._credential = Credential(token=token)
        return self._credential


def bearer_token(text: str, where: str) -> str:
    """Returns the text without surrounding white space.

    UsageError if it does not fit into a header. `where` names the text in the message.
    """
    token = text.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise plugin_errors.UsageError(
            f"{where} should hold one bearer token: visible ASCII characters without a space"
        )
    return token


def read_file(path: Path, content: str) -> str:
    """Returns the text of a file of the configuration.

    UsageError if it cannot be read. `content` says in the message what the file should hold.
    """
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise plugin_errors.UsageError(
            f"{path} should hold {content}, but cannot be read: {error.strerror}; "
            "is the service account's token mounted, and does its path in the configuration fit?"
        ) from error
