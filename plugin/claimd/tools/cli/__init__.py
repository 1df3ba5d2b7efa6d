"""The command line: parses the arguments, runs one command, and reports errors on stderr.

`parser` knows every command with its options. Each command has a module here, which is imported
only when that command runs. That keeps `claimd probe` cheap and `claimd run` small.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
from collections.abc import Callable, Sequence

from claimd.common import errors
from claimd_devices.failures import LookFailedError

from . import parser
from .exit_codes import FAILED, OK, USAGE

# The module of each command, and the function that runs it.
_COMMANDS = {
    "run": ("run", "run"),
    "devices": ("devices", "run"),
    "slices": ("slices", "run"),
    "clear": ("clear", "run"),
    "capture": ("capture", "run"),
    "fake write": ("fake", "write"),
    "fake fault": ("fake", "fault"),
    "convert": ("convert", "run"),
    "probe": ("probe", "run"),
    "explain": ("explain", "run"),
    "doctor": ("doctor", "run"),
    "view": ("view", "run"),
    "sim": ("sim", "run"),
    "demo": ("demo", "run"),
}

# The packages that the node image leaves out, because no node runs them.
_NOT_IN_IMAGE = ("claimd.sim", "claimd.kubernetes.api.objects")


def main(arguments: Sequence[str]) -> int:
    """Runs a command and returns its exit code. `exit_codes` says what each code means.

    An error that the user can act on is one line on stderr, and perhaps some lines of details.
    """
    try:
        return _run(parser.parse(arguments))
    except errors.Fatal as error:
        print(f"claimd: {error}", *error.details, sep="\n", file=sys.stderr)
        return USAGE if isinstance(error, errors.UsageError) else FAILED
    except LookFailedError as error:
        print(f"claimd: the hardware cannot be looked at: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        # The reader of our output has ended, as `head` does. At exit Python flushes stdout, fails
        # once more, and would report that on stderr.
        sys.stderr.close()
        return OK


def _run(arguments: argparse.Namespace) -> int:
    module, function = _COMMANDS[arguments.command]
    try:
        command = importlib.import_module(f".{module}", __package__)
        gc.enable()  # see claimd.__main__
        run: Callable[[argparse.Namespace], int] = getattr(command, function)
        return run(arguments)
    except ModuleNotFoundError as error:
        if error.name not in _NOT_IN_IMAGE:
            raise
        raise errors.UsageError(
            f"this image has no simulator, which `claimd {arguments.command}` needs: "
            "`pip install claimd` has it, and so has a checkout (`make demo`)"
        ) from error
