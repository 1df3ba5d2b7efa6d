"""`claimd probe`: asks `claimd run` whether it is live or ready. Pods use it as an exec probe."""

from __future__ import annotations

import argparse
import sys

from claimd.common import errors, probe
from claimd.node import config

from .exit_codes import FAILED, OK


def run(arguments: argparse.Namespace) -> int:
    settings = config.load(vars(arguments))
    if not settings.endpoint:
        raise errors.UsageError(
            "endpoint is not set; give the one that `claimd run` has, such as --endpoint :8081"
        )

    is_yes, words = probe.ask(settings.endpoint, f"/{arguments.question}z")
    if not is_yes:
        print(words, file=sys.stderr)
        return FAILED
    print(words)
    return OK
