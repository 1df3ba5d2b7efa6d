"""`claimd capture`: writes what claimd reads of a machine's GPUs into a file for `--root`."""

from __future__ import annotations

import argparse
from dataclasses import replace

from claimd.common import errors
from claimd.node import config
from claimd_devices import capture, monitor, scan
from claimd_devices.gpu import Inventory

from . import machine
from .exit_codes import OK


def run(arguments: argparse.Namespace) -> int:
    file = arguments.file
    with machine.open_machine(config.load(vars(arguments))) as here:
        roots = here.settings.roots

        def look() -> Inventory:
            # The same file answers for all settings about virtual machines, and has the files of
            # the health checks.
            inventory = here.scan()
            monitor.check_once(roots, inventory)
            for vfio, vfio_bind in ((False, ()), (True, ()), (False, ("*:*",))):
                rules = replace(here.settings.rules, vfio=vfio, vfio_bind=vfio_bind)
                monitor.check_once(roots, scan.scan(roots, rules, with_link_now=True))
            return inventory

        try:
            inventory, count = capture.pack(file, roots, look, redact=arguments.redact)
        except OSError as error:
            raise errors.Fatal(f"cannot write {file}: {error.strerror or error}") from error

    has_serials = not arguments.redact and any(gpu.uuid for gpu in inventory.gpus)
    serials = "; it has serial numbers, which --redact replaces" if has_serials else ""
    print(f"wrote {file}: {len(inventory.gpus)} GPUs, {count} files{serials}")
    return OK
