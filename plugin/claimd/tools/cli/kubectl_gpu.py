"""`kubectl gpu`: the commands of `claimd` as a kubectl plugin. kubectl finds kubectl-gpu on the
PATH.
"""

from __future__ import annotations

import sys

_HELP = """\
The cluster's GPUs, of any DRA driver.

Usage:
  kubectl gpu list [-o table|json]   every device: who has it, what is wrong with it
  kubectl gpu explain POD            why a pod or a claim gets no devices
  kubectl gpu view                   a page of all of it in the browser
  kubectl gpu doctor                 what is wrong with claimd's nodes, as far as it is seen from here

Each takes --context, and what `claimd COMMAND --help` lists: list is `claimd view -o table`, doctor
is `claimd doctor --cluster`."""
_AS_CLAIMD = {
    "list": ["view", "--output=table"],
    "explain": ["explain"],
    "view": ["view"],
    "doctor": ["doctor", "--cluster"],
}


def main() -> None:
    command, *arguments = sys.argv[1:] or ["--help"]
    if command in ("--help", "-h", "help"):
        print(_HELP)
        return
    if command not in _AS_CLAIMD:
        print(f"error: unknown command {command!r}\n\n{_HELP}", file=sys.stderr)
        sys.exit(2)

    # Ctrl-C may come while the modules of the command are loaded.
    try:
        from . import main as claimd

        sys.exit(claimd([*_AS_CLAIMD[command], *arguments]))
    except KeyboardInterrupt:
        sys.exit("claimd: stopped")
