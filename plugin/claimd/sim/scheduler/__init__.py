"""The simulated scheduler: assigns nodes and devices to pending pods, as an ordinary API client.

Volumes and pod groups are not simulated, and preemption does not free devices. An error on a
node, for example of a selector, ends the search only if the search reaches that node.
"""

from __future__ import annotations

from .scheduler import NAME, Scheduler, run

__all__ = ["NAME", "Scheduler", "run"]
