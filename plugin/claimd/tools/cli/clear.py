"""`claimd clear`: forgets what was reported about a GPU, because a person knows that it is over."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import time

from claimd.common import errors, names
from claimd.node import config
from claimd.node.report import clearings, health_state
from claimd_devices import kmsg, mig
from claimd_devices.failures import LookFailedError
from claimd_devices.gpu import Roots

from . import machine
from .exit_codes import OK


def run(arguments: argparse.Namespace) -> int:
    settings = config.load(vars(arguments))
    with machine.open_machine(settings) as here:
        inventory = here.scan()
    gpu = inventory.find_gpu(arguments.device)
    if gpu is None:
        known = [one.name for one in inventory.gpus]
        close = difflib.get_close_matches(arguments.device, known, n=4, cutoff=0)
        raise errors.UsageError(
            f"no {arguments.device} on this machine; its GPUs are like {', '.join(close) or 'none'}"
        )

    boot_id = health_state.boot_id(settings.roots)
    if not boot_id:
        raise errors.Fatal("the kernel does not identify this boot, so nothing can be cleared")
    clearing = clearings.Clearing(
        device=gpu.name,
        address=gpu.address,
        instance=mig.instance_number(gpu),
        at=time.time(),
        by=arguments.by or _user(),
        reason=arguments.reason,
        number=_next_line(settings.roots),
    )
    folder = names.plugin_folder(settings.kubelet_dir, settings.driver_name)
    try:
        clearings.add(folder, boot_id, clearing)
    except OSError as error:
        raise errors.Fatal(
            f"cannot write into {folder}: {error.strerror or error}; "
            "run this where `claimd run` runs, such as in its pod"
        ) from error
    print(f"{clearing.sentence()}; a running claimd follows at its next look")
    return OK


def _next_line(roots: Roots) -> int | None:
    """Returns the number of the next line of the kernel's log; None if it cannot be read."""
    log = kmsg.Log(roots)
    with contextlib.suppress(LookFailedError):
        log.read_new_lines()
    return log.next_number or None


def _user() -> str:
    """Returns the name of the user as far as the environment has it."""
    return os.environ.get("SUDO_USER") or os.environ.get("USER") or f"user {os.getuid()}"
