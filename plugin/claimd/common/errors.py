"""Errors, grouped by who must act. Messages say what was seen, what was expected and what to do.

A ClaimError refuses one claim. A Fatal needs a person before the program can run. Errors of the API
server are in `kube.errors`.
"""

from collections.abc import Iterable

from . import plain_text


class ClaimError(Exception):
    """This claim cannot be served now.

    The message becomes the claim's answer to the kubelet, which shows it in an Event and tries
    again. The message may quote text from strangers, so it is reduced to one line.

    `device` is the name of a device that no other claim could get now either. It is empty if the
    reason is the claim, or not known.
    """

    def __init__(self, message: str, *, device: str = "") -> None:
        super().__init__(plain_text.one_line(message))
        self.device = device


class NotReadyError(ClaimError):
    """This claim cannot be served yet, but soon: it is worth waiting for within the call.

    The kubelet tries again only after a minute or more.
    """

    def __init__(
        self, message: str, *, patience: float, retry_after: float = 0.0, device: str = ""
    ) -> None:
        """Takes seconds: `patience` to wait at most, and `retry_after` until the next try at least."""
        super().__init__(message, device=device)
        self.patience = patience
        self.retry_after = retry_after


class Fatal(Exception):
    """The program cannot go on until a person changes something; it exits with this message.

    The message may quote text from strangers, so it is reduced to one line. `details` are further
    lines.
    """

    def __init__(self, message: str, *, details: Iterable[str] = ()) -> None:
        super().__init__(plain_text.plain_line(message))
        self.details = tuple(map(plain_text.plain_line, details))


class UsageError(Fatal):
    """The command line, the environment or the configuration file is wrong."""
