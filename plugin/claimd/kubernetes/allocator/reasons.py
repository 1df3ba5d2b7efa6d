"""The reasons why a request cannot get a device, for one request and one device at a time.

The search stops at the first rule that excludes a device. This module checks all rules, so that a
person sees all of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING

from .. import cel
from . import amounts, features, selectors, state, taints
from .causes import join_names
from .failures import AllocationError, CancelledError
from .verdicts import DeviceVerdict, Reason, Rule

if TYPE_CHECKING:
    from ..api.resource import CapacityRequestPolicyRange, DeviceTaint
    from .allocator import SearchInput
    from .devices import Candidate
    from .holdings import Holdings
    from .identity import PoolID
    from .requests import Request


# The most claims that a reason names.
_MOST_SHARERS = 6


class Reasons:
    """The reasons of one search, for each request and each device."""

    def __init__(
        self, search_input: SearchInput, holdings: Holdings, drivers: frozenset[str]
    ) -> None:
        """Prepares the rules. `drivers` are all drivers that publish slices in the cluster."""
        self._input = search_input
        self._devices = search_input.devices
        self._holdings = holdings
        self._domains = set(drivers)
        for candidate in self._devices.candidates:
            names = (*candidate.device.attributes, *candidate.device.capacity)
            self._domains.update(name.partition("/")[0] for name in names if "/" in name)
        self._verdicts: dict[Hashable, tuple[DeviceVerdict, ...]] = {}

    def verdicts(self, request: Request) -> tuple[DeviceVerdict, ...]:
        """Returns a verdict with all reasons for each device of the node.

        Requests that are alike share the result. CancelledError as soon as the `cancelled` of the
        devices returns True.
        """
        key = self.likeness(request)
        if key not in self._verdicts:
            verdicts = []
            for candidate in self._devices.candidates:
                if self._devices.cancelled and self._devices.cancelled():
                    raise CancelledError("filter operation aborted")
                reasons = tuple(self._reasons(request, candidate))
                verdicts.append(DeviceVerdict(device=candidate.id, reasons=reasons))
            self._verdicts[key] = tuple(verdicts)
        return self._verdicts[key]

    def likeness(self, request: Request) -> Hashable:
        """Returns a key. Requests with equal keys have the same reasons for every device."""
        attributes = []
        for constraint in self._input.constraints[request.claim_index]:
            if request.is_under(constraint.requests):
                attributes.append(constraint.attribute)

        expressions = []
        for selector in request.selectors:
            expressions.append(selector.cel.expression if selector.cel else "")
        return (
            request.class_name,
            tuple(expressions),
            tuple(map(str, request.tolerations)),
            request.admin,
            tuple(sorted((request.capacity or {}).items())),
            tuple(sorted(request.derived.items())),
            frozenset(attributes),
        )

    def _reasons(self, request: Request, candidate: Candidate) -> Iterator[Reason]:
        """Yields the reasons of all rules."""
        for rule in (
            self._selectors,
            self._attributes,
            self._place,
            self._capacity,
            self._counters,
        ):
            # The search may never have met this error, because another rule excludes the device.
            try:
                yield from rule(request, candidate)
            except AllocationError as error:
                yield Reason(rule="error", text=str(error))

    # Class, selectors and attributes

    def _selectors(self, request: Request, candidate: Candidate) -> Iterator[Reason]:
        class_ = request.class_
        assert class_
        of_class: Rule = "class"
        of_request: Rule = "selector"
        for kind, owner, owned in (
            (of_class, f"class {class_.metadata.name}: ", class_.spec.selectors),
            (of_request, "", request.selectors),
        ):
            for number, selector in enumerate(owned, 1):
                expression = selector.cel.expression if selector.cel else ""
                rule = kind
                try:
                    why_not = self._why_not(expression, candidate)
                except (cel.EvalError, cel.CompileError) as error:
                    rule = "error"
                    why_not = self.misspelt(expression) or f"fails: {error}"
                if why_not:
                    yield Reason(rule=rule, text=f"{owner}selector {number} {why_not}")
                    # A later selector may rely on this one.
                    break

    def _why_not(self, expression: str, candidate: Candidate) -> str:
        """Returns the reason why the device does not match the selector. Empty if it does."""
        program = selectors.compile_expression(expression)
        if program.matches(candidate.for_cel):
            return ""
        return self.misspelt(expression) or (
            f"false: {program.explain(candidate.for_cel).text or expression}"
        )

    def misspelt(self, expression: str) -> str:
        """Returns a phrase about a misspelt driver or domain in the expression.

        Empty unless an unknown name is similar to a known one.
        """
        try:
            program = selectors.compile_expression(expression)
        except cel.CompileError:
            return ""
        for name in sorted(program.domains - self._domains):
            near = difflib.get_close_matches(name, sorted(self._domains), n=1, cutoff=0.8)
            if near:
                return (
                    f"asks for {name}, which is no driver and no attribute's domain here: "
                    f"is {near[0]} meant?"
                )
        return ""

    def _attributes(self, request: Request, candidate: Candidate) -> Iterator[Reason]:
        for constraint in self._input.constraints[request.claim_index]:
            if not request.is_under(constraint.requests):
                continue
            if self._devices.attribute(request, candidate, constraint.attribute) is None:
                yield Reason(rule="attribute", text=f"it has no attribute {constraint.attribute}")

    # Node, holders, taints, capacity and counters

    def _place(self, request: Request, candidate: Candidate) -> Iterator[Reason]:
        devices = self._devices
        if not devices.is_for_node(candidate):
            yield Reason(rule="node", text="it is not for this node")
        if not request.admin and candidate.id in devices.allocated.devices:
            claims = ", ".join(self._holdings.claims_of(candidate.id) or ("unknown",))
            yield Reason(rule="held", text=f"held by claim {claims}")
        if not request.admin and devices.is_left_of_sharing(candidate):
            claims = ", ".join(self._holdings.claims_of(candidate.id) or ("unknown",))
            text = f"claim {claims} shares it, and it may no longer be shared"
            yield Reason(rule="held", text=text)
        taint = devices.blocking_taint(request, candidate)
        if taint:
            yield Reason(rule="taint", text=_taint(taint))
        if not devices.can_skip_operations(candidate):
            yield Reason(
                rule="feature",
                text="its slice skips node operations, which the node cannot do without",
            )
        if (
            candidate.device.binding_conditions
            and features.BINDING_CONDITIONS not in devices.features
        ):
            yield Reason(rule="feature", text="it has binding conditions, and their feature is off")

    def _capacity(self, request: Request, candidate: Candidate) -> Iterator[Reason]:
        devices = self._devices
        if not devices.consumable:
            return
        requested = request.capacity or {}
        absent = [name for name in requested if candidate.own_name(name) not in candidate.capacity]
        if absent:
            yield Reason(rule="capacity", text=_absent(absent, candidate))
            return
        consumed = devices.consumption(request, candidate)
        if consumed is None:
            amounts_requested = [f"{name}={amount}" for name, amount in requested.items()]
            shown = ", ".join(amounts_requested) or "its default"
            allowed = _allowed_amounts(requested, candidate)
            text = f"the device's request policy does not allow {shown}{allowed}"
            yield Reason(rule="capacity", text=text)
            return

        taken = devices.allocated.capacity.get(candidate.id, {})
        for name, amount in consumed.items():
            limit, used = candidate.limits[name], taken.get(name, 0)
            if used + amount.billionths <= limit:
                continue
            rule: Rule = "consumed" if amount.billionths <= limit else "capacity"
            left = amounts.canonical(max(limit - used, 0), amount.binary)
            whole = candidate.capacity[name].value
            text = f"{name}: needs {amount.text}, {left} of {whole} left"
            sharers = self._sharers(candidate, name)
            yield Reason(rule=rule, text=f"{text}; {sharers}" if sharers else text)

    def _sharers(self, candidate: Candidate, capacity: str) -> str:
        """Returns how much of the capacity each claim has, the largest amounts first."""
        shares = []
        for holding in self._holdings.in_pools((candidate.pool_id,)):
            if holding.device != candidate.id:
                continue
            consumed = state.consumed_by(holding.result, self._devices.features)
            if capacity in consumed:
                shares.append((amounts.parse(consumed[capacity]), holding.claim))
        shares.sort(key=lambda share: (-share[0].billionths, share[1]))

        phrases = []
        for amount, claim in shares:
            if amount.billionths > 0:
                phrases.append(f"{claim} has {amount.text}")
        if len(phrases) > _MOST_SHARERS:
            rest = len(phrases) - _MOST_SHARERS + 1
            phrases[_MOST_SHARERS - 1 :] = [f"{rest} more have the rest"]
        return ", ".join(phrases)

    def _counters(self, _request: Request, candidate: Candidate) -> Iterator[Reason]:
        devices = self._devices
        if not candidate.device.consumes_counters or candidate.id in devices.allocated.shared:
            return
        if not devices.partitionable:
            yield Reason(rule="feature", text="it uses shared counters, and their feature is off")
            return

        counters = devices.counters(candidate.pool_id)
        short = False
        for (counter_set, counter), used in candidate.uses:
            left = counters.left.get((counter_set, counter), 0)
            if used > left:
                short = True
                text = (
                    f"counter {counter_set}/{counter}: needs {amounts.format_billionths(used)}, "
                    f"{amounts.format_billionths(max(left, 0))} left"
                )
                users = self._users_of(candidate.pool_id)
                if users:
                    text += f" (pool used by {', '.join(users)})"
                yield Reason(rule="counters", text=text)
        if counters.is_overdrawn and not short:
            yield Reason(rule="counters", text="another counter of its pool is overdrawn")

    def _users_of(self, pool_id: PoolID) -> list[str]:
        return sorted({holding.claim for holding in self._holdings.in_pools((pool_id,))})


def _taint(taint: DeviceTaint) -> str:
    value = f"={taint.value}" if taint.value else ""
    text = f"taint {taint.key}{value}:{taint.effect} is not tolerated by the claim"
    if isinstance(taint, taints.TaintOfRule):
        return f"{text} (set by DeviceTaintRule {taint.rule})"
    return text


def _allowed_amounts(requested: Iterable[str], candidate: Candidate) -> str:
    """Returns the amounts that the policies of these capacities allow, in brackets."""
    phrases = []
    for name in requested:
        policy = candidate.capacity[candidate.own_name(name)].request_policy
        if policy and policy.valid_values:
            values = join_names(policy.valid_values)
            phrases.append(f"only {name} of {values.replace(' and ', ' or ')}")
        elif policy and policy.valid_range:
            phrases.append(f"{name} may be {_range(policy.valid_range)}")
    return f" ({'; '.join(phrases)})" if phrases else ""


def _range(valid: CapacityRequestPolicyRange) -> str:
    least = f"{valid.min} or more" if valid.min else "anything"
    limit = f", up to {valid.max}" if valid.max else ""
    step = f", in steps of {valid.step}" if valid.step else ""
    return f"{least}{limit}{step}"


def _absent(names: list[str], candidate: Candidate) -> str:
    """Returns the reason for capacities that the device does not have.

    A qualified name may be the mistake: a driver publishes its own capacities under plain names.
    """
    text = f"no capacity {', '.join(names)}"
    for name in names:
        domain, _, plain = name.partition("/")
        if domain == candidate.id.driver and plain in candidate.device.capacity:
            return f"{text}: its driver's own goes by the plain name, {plain}"
    return text
