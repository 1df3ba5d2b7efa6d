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


class DividedBudget(Budget, frozen=True):
    """A limit that all namespaces share, and that no single one can use up.

    The last `kept` are only for namespaces that have few.
    """

    kept: int
    few: int

    def __str__(self) -> str:
        return (
            f"{self.limit:,} {self.unit}, and the last {self.kept:,} are for namespaces that have at "
            f"most {self.few}"
        )

    def has_room(self, total: int, own: int) -> bool:
        """Returns True if all namespaces together may have `total`, and one of them `own`."""
        return total <= (self.limit if own <= self.few else self.limit - self.kept)


VARIABLES = Budget(
    "variables in all configurations of one claim, those of its class included",
    1024,
    "variables",
    "claimd looks at each variable for each device, and other claims wait meanwhile",
)
ENVIRONMENT = Budget(
    "variables that the configuration of one claim sets, counted for each of its devices, and 32 "
    "bytes more for each variable",
    128 * 1024,
    "bytes",
    "the checkpoint and the CDI spec contain them, and a container runtime reads the spec at every "
    "start of a container; for 128 devices both files together stay below 1 MiB",
)
CHECKPOINTS = DividedBudget(
    "claims that are prepared on one node",
    4096,
    "claims",
    "claimd keeps all of them in memory; even GPUs with hundreds of shares need fewer",
    kept=1024,
    few=64,
)
CALLS = DividedBudget(
    "claims in the calls that the kubelet has under way",
    2560,
    "claims",
    "claimd works on them at the same time; beyond this, the kubelet is told to ask again",
    kept=512,
    few=64,
)
CHECKPOINT = Budget(
    "the file of one checkpoint",
    1024 * 1024,
    "bytes",
    "claimd never writes a larger one; at the start it renames a larger one without reading it, so "
    "that the start succeeds",
)

ANSWER = Budget(
    "an answer of the API server to claimd run",
    4 * 1024 * 1024,
    "bytes",
    "an answer is a claim, or the slices of one node; decoded it needs up to 40 times this memory",
)

ALL = (VARIABLES, ENVIRONMENT, CHECKPOINTS, CALLS, CHECKPOINT, ANSWER)
