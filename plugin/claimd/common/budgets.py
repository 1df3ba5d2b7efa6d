"""Budgets for input from others: sizes and counts, not times.

Anybody who may create a pod chooses the content of a claim, within the wide limits of the API: 32
configurations of 10 KiB for 128 devices are legal. A claim beyond a budget is refused with a
sentence that names the budget, and no other claim is affected. docs/security.md has this table.
"""

from __future__ import annotations

import msgspec


class Budget(msgspec.Struct, frozen=True):
    """One limit, with the texts for docs/security.md."""

    what: str
    limit: int
    unit: str
    why: str

    def __str__(self) -> str:
        return f"{self.limit:,} {self.unit}"


VARIABLES = Budget(
    "variables in all configurations of one claim, those of its class included",
    1024,
    "variables",
    "each is looked at for each device, while other claims wait",
)
ENVIRONMENT = Budget(
    "variables that the configuration of one claim sets, counted for each of its devices, and 32 "
    "bytes more for each variable",
    128 * 1024,
    "bytes",
    "they stand in the checkpoint and in the CDI spec, which a container runtime reads at every "
    "start of a container: below 1 MiB together, on 128 devices",
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
    "nothing that we wrote is larger; at the start a larger one is kept apart unread, so that the "
    "plugin comes up",
)

ANSWER = Budget(
    "an answer of the API server to claimd run",
    4 * 1024 * 1024,
    "bytes",
    "a claim, or the slices of one node; decoded it takes 40 times as much at worst",
)

ALL = (VARIABLES, ENVIRONMENT, CHECKPOINTS, CHECKPOINT, ANSWER)
