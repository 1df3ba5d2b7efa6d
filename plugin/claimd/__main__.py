"""`claimd` and `python -m claimd`."""

import sys


def main() -> None:
    try:
        # Here, since Ctrl-C may come while modules are being loaded.
        from claimd.tools import cli

        sys.exit(cli.main(sys.argv[1:]))
    except KeyboardInterrupt:
        # Nothing is up yet that has to be ended in order: what is, takes the signal itself.
        sys.exit("claimd: stopped")


if __name__ == "__main__":
    main()
