"""How large things may be that come from others: sizes and counts, not times. Enforced at the door.

Whoever may create a pod chooses what a claim says, within the API's own limits, and these are wide: 32 configurations of
10 KiB for 128 devices are legal. Past a budget this claim is refused, with a sentence that names the budget, and nobody
else notices. docs/security.md has this table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    what: str
    limit: int
    unit: str
    why: str

    def __str__(self) -> str:
        return f"{self.limit:,} {self.unit}"


ENVIRONMENT = Budget(
    "variables that the configuration of one claim sets, counted for each of its devices",
    256 * 1024,
    "bytes",
    "they stand in the checkpoint and in the CDI spec, which a container runtime reads at every start of a container",
)
CHECKPOINTS = Budget(
    "claims that are prepared on one node",
    4096,
    "claims",
    "all are in memory; a node's GPUs, shared in hundreds, are held by fewer",
)
CHECKPOINT = Budget(
    "the file of one checkpoint",
    1024 * 1024,
    "bytes",
    "nothing that we wrote is larger; at the start a larger one is kept apart unread, so that the plugin comes up",
)

ALL = (ENVIRONMENT, CHECKPOINTS, CHECKPOINT)
