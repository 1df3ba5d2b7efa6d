"""The controllers: claims from templates and back, evictions, nodes and pods without one,
namespaces, workloads.

Ordinary clients of the API server. Garbage collection by owners and the default service accounts
are the server's. Not here: leases of nodes, taints of nodes that evict, jobs, stateful sets.
"""

from __future__ import annotations

from .loops import NAME, run

__all__ = ["NAME", "run"]
