"""Errors by who must act. Messages say what was seen, what was expected and what to do.

A refusal of one claim is a ClaimError; what a person must mend before the program can run is a
Fatal. Errors of the API server live at its edge, in kube.errors. No text of a log line is made
here.
"""

from . import plain_text


class ClaimError(Exception):
    """This claim cannot be served now.

    The message becomes the claim's own answer to the kubelet, which will ask again, and shows it in
    an Event. It may name what a stranger wrote: it is one line, whatever that is.
    """

    def __init__(self, message: str) -> None:
        super().__init__(plain_text.one_line(message))


class NotReadyError(ClaimError):
    """The same for short trouble, which is worth waiting for within the call.

    The kubelet asks again only after a minute or more.
    """

    def __init__(self, message: str, *, patience: float, retry_after: float = 0.0) -> None:
        """Seconds: after `patience` it is not short any more, before `retry_after` nobody may ask."""
        super().__init__(message)
        self.patience = patience
        self.retry_after = retry_after


class Fatal(Exception):
    """The program cannot go on until a person changes something; it exits with this message."""


class UsageError(Fatal):
    """The command line, the environment or the configuration file is wrong."""
