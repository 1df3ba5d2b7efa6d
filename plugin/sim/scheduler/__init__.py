"""The scheduler's part: pending pods get devices and a node. An ordinary client of the API server.

Not here: preemption, affinity between pods, topology spread, volumes, ports of the host.
"""

from __future__ import annotations

from .scheduler import NAME, Scheduler, run

__all__ = ["NAME", "Scheduler", "run"]
