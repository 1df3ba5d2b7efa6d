"""`claimd` and `python -m plugin`."""

import sys


def main() -> None:
    from . import cli  # after the interpreter has settled: errors in imports are then the program's own

    sys.exit(cli.main(sys.argv[1:]))


if __name__ == "__main__":
    main()
