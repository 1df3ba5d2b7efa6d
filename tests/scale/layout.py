"""Where what belongs to a node lies, and how nodes are called: known to those who start a fleet and
to the fleet.
"""

from __future__ import annotations

ACCOUNT = "account"  # in a node's folder: what a pod has of its service account


def node_name(prefix: str, number: int) -> str:
    return f"{prefix}-{number:05d}"
