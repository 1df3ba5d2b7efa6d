"""The scheduler's part: pending pods get devices and a node. An ordinary client of the API server.

Not here: volumes, groups of pods, devices that preemption could free.
An error on a node, as of a selector, ends the search only where it comes to that node.
"""

from __future__ import annotations

from .scheduler import NAME, Scheduler, run

__all__ = ["NAME", "Scheduler", "run"]
