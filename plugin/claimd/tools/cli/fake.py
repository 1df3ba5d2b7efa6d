"""`claimd fake`: writes trees of fake GPUs, and makes the GPUs in them sick or well."""

from __future__ import annotations

import argparse

from claimd.common import errors
from claimd_devices import fake, faults

from .exit_codes import OK


def write(arguments: argparse.Namespace) -> int:
    folder = arguments.folder
    try:
        changed = fake.write(folder, fake.parse(arguments.gpus))
        faults.enable(folder)
    except ValueError as error:
        raise errors.UsageError(str(error)) from error
    except OSError as error:
        raise errors.Fatal(
            f"cannot write the fake tree {folder}: {error.strerror or error}"
        ) from error

    done = "wrote" if changed else "nothing to change in"
    print(f"{done} {folder}; look at it with: claimd devices --root {folder}")
    return OK


def fault(arguments: argparse.Namespace) -> int:
    folder, name, device = arguments.folder, arguments.fault, arguments.device
    try:
        faults.inject(folder, name, device, arguments.value)
    except ValueError as error:
        raise errors.UsageError(str(error)) from error
    except OSError as error:
        raise errors.Fatal(
            f"cannot change the fake tree {folder}: {error.strerror or error}"
        ) from error

    print(f"done: {' '.join([name, device, arguments.value]).rstrip()}")
    return OK
