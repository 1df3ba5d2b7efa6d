"""The controllers of the simulated cluster: claims, evictions, nodes, pods, namespaces, workloads.

They are ordinary clients of the API server. Garbage collection by owner and default service
accounts belong to the API server.
"""

from __future__ import annotations

from .loops import NAME, run

__all__ = ["NAME", "run"]
