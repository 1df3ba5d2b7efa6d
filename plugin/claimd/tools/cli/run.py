"""`claimd run`: serves the kubelet, as the plugin on a node."""

from __future__ import annotations

import argparse
import asyncio

from claimd.common import log
from claimd.node import app, config, event_loop, threads

from . import machine
from .exit_codes import OK


def run(arguments: argparse.Namespace) -> int:
    """Runs the plugin until a signal ends it."""
    with machine.open_machine(config.load(vars(arguments))) as here:
        log.set_up(here.settings.log_level, here.settings.log_format)
        threads.end_if_one_dies()
        threads.check_enough()
        with asyncio.Runner(loop_factory=event_loop.Loop) as runner:
            runner.run(app.build(here.settings).run())
    return OK
