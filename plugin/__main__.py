"""`claimd` and `python -m plugin`."""

import sys


def main() -> None:
    try:
        from . import (
            cli,  # after the interpreter has settled: errors in imports are then the program's own
        )

        sys.exit(cli.main(sys.argv[1:]))
    except KeyboardInterrupt:  # where nothing is up yet that has to be ended in order
        sys.exit("claimd: stopped")


if __name__ == "__main__":
    main()
