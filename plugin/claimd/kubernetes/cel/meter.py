"""What one evaluation has cost by Kubernetes' measure, and how many steps it took by ours.

Kubernetes limits the cost. Its units are those of a compiled language, and some of them are worth
a great many of Python's steps; so the steps are limited as well, to about a tenth of a second.
"""

from __future__ import annotations

from contextvars import ContextVar, Token

from .errors import CostExceededError, StepsExceededError

LIMIT = 1_000_000  # of the cost of a selector for one device
MOST_STEPS = 300_000
# An evaluation that has cost no more than this has had no more steps than this, and they are not
# counted: selectors of devices cost less than a hundred.
CHEAP = 10_000
_COUNT_FROM_THE_FIRST = -1


_running: ContextVar[Meter | None] = ContextVar("meter", default=None)


class Meter:
    """One evaluation's cost and steps. The evaluation runs inside of `with meter`, once."""

    __slots__ = ("_cheap", "_steps_left", "_token", "cost", "limit")

    def __init__(self, limit: int = LIMIT) -> None:
        self.cost = 0
        self.limit = limit
        self._cheap = min(limit, CHEAP)
        self._steps_left = MOST_STEPS
        self._token: Token[Meter | None] | None = None

    def __enter__(self) -> Meter:
        self._token = _running.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._token
        _running.reset(self._token)

    def charge(self, amount: int) -> None:
        """Count what a step costs; CostExceededError where Kubernetes gives up, too."""
        self.cost += amount
        if self.cost > self._cheap:
            self._count_step()

    def spend(self, steps: int) -> None:
        """Count steps that cost nothing by themselves, before they are taken."""
        self._steps_left -= steps
        if self._steps_left < 0:
            raise self._steps_error()

    def _count_step(self) -> None:
        if self.cost > self.limit:
            raise CostExceededError(f"the expression costs more than {self.limit} for this device")
        self.spend(1)

    def _steps_error(self) -> StepsExceededError:
        # Who catches it on the way cannot go on either: the next step raises it again.
        self._cheap = _COUNT_FROM_THE_FIRST
        return StepsExceededError(
            f"the expression takes too long: more than {MOST_STEPS:,} steps for this device"
        )


def spend(steps: int) -> None:
    """Count steps of the evaluation that runs; one that has no meter is known to take few."""
    meter = _running.get()
    if meter is not None:
        meter.spend(steps)
