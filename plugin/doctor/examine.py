"""All the looking and all the judging of a node, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ..config import Config
from . import drivers, host, kubelet, runtime, sight
from .check import Check, Finding

CHECKS: tuple[Check, ...] = (
    *kubelet.CHECKS,
    *runtime.CHECKS,
    *drivers.CHECKS,
    *host.CHECKS,
)


async def node(settings: Config, environment: Mapping[str, str] | None = None) -> list[Finding]:
    """What every check says of the node that we run on. Changes nothing."""
    seen = sight.of(settings, environment)
    kubelet_version = runtime_version = ""

    kubelet_facts = await kubelet.look(seen, kubelet_version)
    # The kernel's files may take their time, or never answer.
    driver_facts = await asyncio.to_thread(drivers.look, seen)
    runtime_facts = runtime.look(seen, runtime_version)
    host_facts = host.look(seen)

    return [
        *kubelet.judge(kubelet_facts),
        *runtime.judge(runtime_facts, seen.how),
        *drivers.judge(driver_facts, runtime_facts.systemd_cgroup, seen.how),
        *host.judge(host_facts, seen.how),
    ]
