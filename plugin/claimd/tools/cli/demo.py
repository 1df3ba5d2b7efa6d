"""`claimd demo`: plays a story on a simulated cluster."""

from __future__ import annotations

import argparse

from claimd.sim import cluster
from claimd.sim.demo import command

from .exit_codes import OK


def run(arguments: argparse.Namespace) -> int:
    page = None
    if arguments.serve:
        # The page costs time to load, and few demos are served.
        from ..view import server

        page = server.serve_cluster

    command.run(
        command.DemoOptions(
            story=arguments.story,
            profile=arguments.profile,
            state=arguments.state,
            serve=arguments.serve,
            page=page,
            plain=arguments.plain,
            speed=arguments.speed,
            programs=cluster.find_programs(
                arguments.scheduler, arguments.controllers, arguments.binding_timeout
            ),
        )
    )
    return OK
