"""The setting `share`: which GPUs several claims may have at the same time, and how claims request
them.

This module is pure. A rule of the setting has the form `WHICH=HOW`, and the last rule that matches
a GPU wins. This module describes a shared GPU to the scheduler. claimd does not keep containers
within their share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from claimd.kubernetes.api import quantity
from claimd.kubernetes.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    DeviceCapacity,
)
from claimd_devices import scan
from claimd_devices.gpu import DIVIDED, Gpu, Inventory

EXCLUSIVE = "exclusive"
MEMORY, SHARES, UNLIMITED = "memory", "shares", "unlimited"

LEAST, STEP = 1 << 30, 1 << 20  # bytes, unless the rule says otherwise

# What a driver keeps of the memory for itself, at the most: this, and one part of 128 for its page
# tables. Programs found 0.3 GiB less on a T4, 0.6 on an L40S, 0.9 on an A100 and 1.3 on an H200.
_KEPT, _KEPT_PART = 512 << 20, 128
MOST_SHARES = 1000

_FORMS = (
    "expected WHICH=HOW, as in nvidia=memory, 10de:2330=memory:4Gi:1Gi, 0000:41:00.0=shares:4, "
    "parts=unlimited or *=exclusive"
)
_ALL, _PARTS = "*", "parts"


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """How one GPU is shared."""

    how: str = EXCLUSIVE  # EXCLUSIVE, MEMORY, SHARES or UNLIMITED

    # If shared by memory, in bytes: the least that a claim gets, and the step above that.
    least: int = LEAST
    step: int = STEP

    # If shared by count: the number of shares.
    count: int = 0

    def __str__(self) -> str:
        """Returns a phrase for people, which follows the word "shared"."""
        if self.how == MEMORY:
            least, step = quantity.format_amount(self.least), quantity.format_amount(self.step)
            return f"by memory, {least} or more in steps of {step}"
        if self.how == SHARES:
            return f"by count, {self.count} shares"
        return "without limit" if self.how == UNLIMITED else "not at all"


ALONE = Sharing()


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of the setting."""

    matches: Callable[[Gpu], bool]
    sharing: Sharing


def parse(rules: Iterable[str]) -> tuple[Rule, ...]:
    """Returns the rules of the setting. Raises ValueError that names the first malformed rule."""
    return tuple(_parse_rule(rule) for rule in rules)


def of_gpu(rules: Sequence[Rule], gpu: Gpu) -> Sharing:
    """Returns how a GPU, or a part of one, is shared.

    A GPU for virtual machines, or whose memory belongs to its parts, is never shared.
    """
    if gpu.kind in ("vfio", DIVIDED):
        return ALONE
    for rule in reversed(rules):
        if rule.matches(gpu):
            return rule.sharing
    return ALONE


def is_any_shared(rules: Sequence[Rule], inventory: Inventory) -> bool:
    """Returns True if the rules make at least one GPU of the inventory shared."""
    return any(of_gpu(rules, gpu) != ALONE for gpu in inventory.gpus)


def allocatable(memory: int) -> int:
    """Returns the bytes that all programs together can get of a GPU's memory."""
    return max(memory - _KEPT - memory // _KEPT_PART, 0) & -STEP


def reason_unfit(sharing: Sharing, memory: int | None) -> str:
    """Returns the reason why a GPU with this memory cannot be shared like this; empty if it can."""
    if sharing.how != MEMORY:
        return ""
    if not memory:
        return "how much memory it has is not known"
    memory = allocatable(memory)
    if sharing.least + sharing.step > memory:
        return (
            f"with {quantity.format_amount(memory)} it has room for one share of "
            f"{quantity.format_amount(sharing.least)} alone"
        )
    return ""


def capacities(
    sharing: Sharing, alone: dict[str, DeviceCapacity], memory: int
) -> dict[str, DeviceCapacity]:
    """Returns the capacities of a shared device, given those that it would have if exclusive.

    A claim takes all of a capacity that it does not request, unless the capacity has a request
    policy. So each capacity gets a policy: a claim that does not request it takes nothing of it,
    unless the GPU is shared by this very capacity.
    """
    nothing = CapacityRequestPolicy(default="0")
    shared = {
        name: DeviceCapacity(value=capacity.value, request_policy=nothing)
        for name, capacity in alone.items()
    }

    if sharing.how == MEMORY:
        memory = allocatable(memory)

        # The default must be on a step. The rest above the last step is less than the least amount,
        # so that a claim for the whole memory leaves no room for another claim.
        steps = (memory - sharing.least) // sharing.step
        whole = sharing.least + steps * sharing.step
        shared["memory"] = DeviceCapacity(
            value=quantity.format_amount(memory),
            request_policy=_range(default=whole, least=sharing.least, step=sharing.step),
        )
    elif sharing.how == SHARES:
        shared["shares"] = DeviceCapacity(
            value=quantity.format_amount(sharing.count),
            request_policy=_range(default=1, least=1, step=1),
        )
    return shared


def _range(*, default: int, least: int, step: int) -> CapacityRequestPolicy:
    return CapacityRequestPolicy(
        default=quantity.format_amount(default),
        valid_range=CapacityRequestPolicyRange(
            min=quantity.format_amount(least), step=quantity.format_amount(step)
        ),
    )


# ---------------------------------------------------------------------- one rule


def _parse_rule(rule: str) -> Rule:
    which, equals, how = rule.partition("=")
    if not equals:
        raise ValueError(f"{rule!r} is no rule for sharing: {_FORMS}")
    try:
        return Rule(matches=_matcher(which.strip()), sharing=_sharing(how.strip()))
    except ValueError as error:
        raise ValueError(f"{rule!r} is no rule for sharing: {error}") from None


def _matcher(which: str) -> Callable[[Gpu], bool]:
    if which == _ALL:
        return lambda _: True
    if which == _PARTS:
        return lambda gpu: gpu.parent is not None or gpu.kind in ("partition", "vf")
    return scan.matcher(which)


def _sharing(text: str) -> Sharing:
    how, *values = text.split(":")
    if how in (EXCLUSIVE, UNLIMITED) and not values:
        return Sharing(how=how)
    if how == MEMORY and len(values) <= 2:
        return _by_memory(values)
    if how == SHARES and len(values) == 1:
        return _by_shares(values[0])
    raise ValueError(
        f"{text!r} is no way to share; known are memory, memory:LEAST, memory:LEAST:STEP, "
        "shares:COUNT, unlimited and exclusive"
    )


def _by_memory(values: Sequence[str]) -> Sharing:
    least = _bytes(values[0]) if values else LEAST
    step = _bytes(values[1]) if len(values) == 2 else min(STEP, least)
    if step > least:
        raise ValueError(
            f"the step ({values[1]}) is more than the least amount ({values[0]}): what is left "
            "next to a claim for all of the memory could be given away"
        )
    return Sharing(how=MEMORY, least=least, step=step)


def _by_shares(value: str) -> Sharing:
    count = int(value) if value.isascii() and value.isdecimal() else 0
    if not 2 <= count <= MOST_SHARES:
        raise ValueError(f"expected 2 to {MOST_SHARES} shares, got {value!r}")
    return Sharing(how=SHARES, count=count)


def _bytes(text: str) -> int:
    amount = quantity.parse(text)
    if amount.denominator != 1 or not 1 <= amount <= quantity.LARGEST:
        raise ValueError(f"expected an amount of memory such as 4Gi, got {text!r}")
    return int(amount)
