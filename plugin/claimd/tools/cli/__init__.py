"""The command line: parses, calls, prints. Nothing is decided here.

`parser` knows every command and its options; a module for each command, or for a group of them,
does what is asked. It is loaded when its command is, with what it needs and no more, so that
`claimd probe` stays cheap and `claimd run` small.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from claimd.common import errors

from . import parser
from .exit_codes import FAILED, OK, USAGE


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 done, 1 failed, 2 wrongly used. What went wrong is on stderr."""
    try:
        return _run(parser.parse(arguments))
    except errors.UsageError as error:
        print(f"claimd: {error}", file=sys.stderr)
        return USAGE
    except errors.Fatal as error:
        print(f"claimd: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        # The reader of our output has seen enough. Closed, or Python would tell us of it at exit.
        sys.stderr.close()
        return OK


def _run(arguments: argparse.Namespace) -> int:
    match arguments.command:
        case "run":
            from . import run

            return run.run(arguments)
        case "devices":
            from . import devices

            return devices.run(arguments)
        case "slices":
            from . import slices

            return slices.run(arguments)
        case "capture":
            from . import capture

            return capture.run(arguments)
        case "fake write" | "fake fault":
            from . import fake

            action = fake.write if arguments.command == "fake write" else fake.fault
            return action(arguments)
        case "convert":
            from . import convert

            return convert.run(arguments)
        case "probe":
            from . import probe

            return probe.run(arguments)
        case "explain":
            from . import explain

            return explain.run(arguments)
        case "doctor":
            from . import doctor

            return doctor.run(arguments)
        case "view":
            from . import view

            return view.run(arguments)
        case "sim":
            from . import sim

            return sim.run(arguments)
        case "demo":
            from . import demo

            return demo.run(arguments)
    raise AssertionError(arguments.command)
