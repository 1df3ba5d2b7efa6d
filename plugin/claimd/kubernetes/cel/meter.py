"""The cost of one evaluation by Kubernetes' measure, and the number of its steps in Python.

Kubernetes limits the cost. Its units suit a compiled language, and some of them take a great many
steps in Python. The steps are therefore limited as well, to about a tenth of a second.
"""

from __future__ import annotations

from contextvars import ContextVar, Token

from .errors import CostExceededError, StepsExceededError

# The limit of Kubernetes for the cost of a selector for one device.
LIMIT = 1_000_000
MOST_STEPS = 300_000
# Steps are counted only from this cost on, since an evaluation has at most as many steps as its
# cost. Nearly all selectors of devices cost less than a hundred.
CHEAP = 10_000
_COUNT_FROM_THE_FIRST = -1

_running: ContextVar[Meter | None] = ContextVar("meter", default=None)


class Meter:
    """The cost and the steps of one evaluation, which runs once, inside of `with meter`."""

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
        """Counts the cost of a step. Raises CostExceededError where Kubernetes gives up, too."""
        self.cost += amount
        # Every step comes here. The limits are checked only when the cost is no longer low.
        if self.cost > self._cheap:
            self._count_step()

    def spend(self, steps: int) -> None:
        """Counts steps that have no cost in Kubernetes, before they are taken."""
        self._steps_left -= steps
        if self._steps_left < 0:
            raise self._steps_error()

    def _count_step(self) -> None:
        if self.cost > self.limit:
            raise CostExceededError(f"the expression costs more than {self.limit} for this device")
        self.spend(1)

    def _steps_error(self) -> StepsExceededError:
        # If the evaluation catches this error, its next step raises it again.
        self._cheap = _COUNT_FROM_THE_FIRST
        return StepsExceededError(
            f"the expression takes too long: more than {MOST_STEPS:,} steps for this device"
        )


def spend(steps: int) -> None:
    """Counts steps of the evaluation that runs.

    An evaluation without a meter is known to take few steps, so nothing is counted then.
    """
    meter = _running.get()
    if meter is not None:
        meter.spend(steps)
