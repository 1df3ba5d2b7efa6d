"""The entry point of `claimd` and `python -m claimd`."""

import gc
import sys


def main() -> None:
    # Loading modules makes many objects, and none of them is garbage. The collector would look at
    # all of them again and again. It is enabled again when the command's module is loaded.
    gc.disable()
    try:
        # Imported inside the try, since Ctrl-C may come while modules are being loaded.
        from claimd.tools import cli

        sys.exit(cli.main(sys.argv[1:]))
    except KeyboardInterrupt:
        # A part that needs an orderly end handles the signal itself.
        sys.exit("claimd: stopped")


if __name__ == "__main__":
    main()
