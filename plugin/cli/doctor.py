"""`claimd doctor`: what stands between a node, or a cluster, and GPUs that work."""

from __future__ import annotations

import argparse
import asyncio
import os

from devices import scan

from .. import config, errors
from ..config import Config
from ..doctor import check, examine, report
from ..doctor.check import Level
from . import output
from .exit_codes import OK

# Beside 0, by the worst that was found. 1 and 2 are errors, as everywhere.
WARNING = 3
ERROR = 4
_EXIT_CODES = {Level.WARNING: WARNING, Level.ERROR: ERROR}


def run(arguments: argparse.Namespace) -> int:
    """Tell what is not well. 0: nothing, notes aside; 3: warnings; 4: errors."""
    settings = config.load(vars(arguments))
    _check(settings)
    findings = asyncio.run(examine.node(settings))

    if arguments.output == "json":
        print(output.text_of(report.as_data(findings)), end="")
    else:
        everything = arguments.all or arguments.output == "wide"
        print(report.as_text(findings, everything=everything), end="")
    return _EXIT_CODES.get(check.worst(findings), OK)


def _check(settings: Config) -> None:
    try:
        scan.check_rules(settings.rules)
    except ValueError as error:
        raise errors.UsageError(str(error)) from error

    # What root alone may see would look broken to others.
    folder = settings.kubelet_dir
    if folder.exists() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise errors.Fatal(f"{folder} is root's, as is most of what is looked at: run this as root")
