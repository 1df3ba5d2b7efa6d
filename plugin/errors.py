"""Errors by who must act. Messages say what was seen, what was expected and what to do.

A refusal of one claim is a ClaimError; what a person must mend before the program can run is a
Fatal. Errors of the API server live at its edge, in kube.errors. No text of a log line is made
here.
"""


class ClaimError(Exception):
    """This claim cannot be served now.

    The message becomes the claim's own answer to the kubelet, which will ask again.
    """


class NotReadyError(ClaimError):
    """The same for short trouble, which is worth waiting for within the call.

    The kubelet asks again only after a minute or more.
    """

    def __init__(self, message: str, *, patience: float) -> None:
        super().__init__(message)
        self.patience = patience  # seconds after which it is not short any more


class Fatal(Exception):
    """The program cannot go on until a person changes something; it exits with this message."""


class UsageError(Fatal):
    """The command line, the environment or the configuration file is wrong."""
