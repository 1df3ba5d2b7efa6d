"""The structured allocator for users of Python: it takes the public objects, and returns them.

Claims, classes, slices and nodes may be objects of `claimd.kubernetes.api.objects` in any version,
objects of the official Python client, or plain data. The allocations are `v1.AllocationResult`s.
The names follow Go's package `k8s.io/dynamic-resource-allocation/structured`.

The work is done by `claimd.kubernetes.allocator`, which has structs of its own for speed. Programs
of claimd use that package. The image of the node does not contain this module.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from claimd.common.time_limit import TimeLimit

from . import allocator as internal
from .allocator import AllocationError, DeviceID, PoolID, explain, features, pools, state, taints
from .allocator.verdicts import NodeVerdict
from .api import core, scheduling
from .api.objects import foreign, v1
from .api.objects.meta import Object
from .api.objects.shapes import Shape

__all__ = [
    "Allocator",
    "AllocationError",
    "ClaimLister",
    "DeviceID",
    "NodeVerdict",
    "Pool",
    "PoolID",
    "gather_pools",
]

_RELEASE = re.compile(r"v?1\.(?P<minor>[0-9]{1,6})(\..*)?")

T = TypeVar("T")
# An object of this project in any version, one of the official client, or plain data.
AnyObject = Any


class ClaimLister(Protocol):
    """A source of claims."""

    def list_all_allocated(self) -> Iterable[AnyObject]:
        """Returns the claims that are allocated. It may return others, too: they do not count."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    """A resource pool that has devices for a node.

    `slices` are those of the newest generation that have devices for the node. An incomplete pool
    lacks slices, and an invalid one contradicts itself. Both are there without slices, and the
    allocator takes no device from them.
    """

    pool_id: PoolID
    is_incomplete: bool
    invalid_reason: str
    slices: tuple[v1.ResourceSlice, ...]

    @property
    def is_invalid(self) -> bool:
        return bool(self.invalid_reason)


class Allocator:
    """Chooses devices for claims on one node, exactly as Kubernetes' scheduler does.

    An allocator never changes after its construction, so threads may share it. It does not
    remember what it has allocated. A caller that uses an answer writes it into the status of the
    claim, and creates an Allocator with the new state.
    """

    def __init__(  # noqa: PLR0913 - each describes the cluster or its scheduler
        self,
        claims_to_allocate: Iterable[AnyObject],
        claim_lister: ClaimLister | Iterable[AnyObject],
        classes: Iterable[AnyObject],
        slices: Iterable[AnyObject],
        *,
        taint_rules: Iterable[AnyObject] = (),
        feature_gates: Iterable[str] | None = None,
        release: str = "1.37",
    ) -> None:
        """Creates an allocator for the state of a cluster.

        `claim_lister` has the claims of the cluster: a ClaimLister, or simply the claims. Those
        that are allocated hold their devices. `release` is that of the scheduler. In 1.38, `memory`
        and `DRIVER/memory` are one capacity. `feature_gates` are the scheduler's. If it is None,
        they are those that the release enables by default, and those that the objects use.

        Raises `plain.Invalid` if an object breaks a rule of the API, and ValueError if no gate or
        release has such a name.
        """
        if hasattr(claim_lister, "list_all_allocated"):
            claim_lister = claim_lister.list_all_allocated()
        self._claims = [
            foreign.read_object(claim, v1.ResourceClaim) for claim in claims_to_allocate
        ]
        self._waiting = [_to_internal(claim, scheduling.ResourceClaim) for claim in self._claims]
        known = _read_all(claim_lister, v1.ResourceClaim, scheduling.ResourceClaim)
        cluster_slices = _read_all(slices, v1.ResourceSlice, scheduling.ResourceSlice)
        rules = _read_all(taint_rules, v1.DeviceTaintRule, scheduling.DeviceTaintRule)

        enabled = _read_gates(
            feature_gates, _minor(release), cluster_slices, [*known, *self._waiting]
        )
        self._holdings = explain.gather_holdings(known)
        self._allocator = internal.Allocator(
            class_lister=internal.Classes(
                _read_all(classes, v1.DeviceClass, scheduling.DeviceClass)
            ),
            slices=taints.apply_rules(cluster_slices, rules),
            allocated=state.gather_from_claims(known, enabled),
            features=enabled,
        )

    def claims_to_allocate(self) -> list[v1.ResourceClaim]:
        """Returns the claims that the allocator was created for."""
        return list(self._claims)

    def allocate(self, node: AnyObject) -> list[v1.AllocationResult] | None:
        """Returns one result for each claim, or None if the node cannot satisfy all of them.

        The node may also be only a name, if no device has a node selector. The same input gives the
        same answer, apart from new share ids. Raises AllocationError if the allocator cannot
        decide, for example because a CEL expression fails. Its `node_only` is True if another node
        may still succeed.
        """
        found = self._allocator.allocate(_node(node), self._waiting)
        if found is None:
            return None
        return [v1.AllocationResult.from_dict(_plain(result)) for result in found]

    def explain(self, node: AnyObject, time_limit: float = 5.0) -> NodeVerdict:
        """Returns the outcome on the node with its reasons. It never raises AllocationError.

        `outcome` is "yes", "no", "error" or "unknown". `summary` says in one line what is short.
        `claims` has the reasons against each device, and `shortage.remedies` the changes that would
        help. The outcome is "unknown" if the search takes longer than `time_limit` seconds of
        processor time.
        """
        is_over = TimeLimit(time_limit).is_over
        where, claims = _node(node), self._waiting
        verdict = explain.explain_node(
            self._allocator, where, claims, self._holdings, always=True, expired=is_over
        )
        return explain.add_remedies(
            verdict, self._allocator, where, claims, self._holdings, expired=is_over
        )


def gather_pools(
    slices: Iterable[AnyObject],
    node: AnyObject,
    *,
    feature_gates: Iterable[str] | None = None,
    release: str = "1.37",
) -> list[Pool]:
    """Returns the pools that have devices for the node, in the order of the search.

    Slices of older generations are ignored. The node may also be only a name, if no slice has a
    node selector. `feature_gates` and `release` are as in Allocator. Raises AllocationError if the node selector
    of a slice is invalid.
    """
    public = [foreign.read_object(slice_, v1.ResourceSlice) for slice_ in slices]
    ours = [_to_internal(slice_, scheduling.ResourceSlice) for slice_ in public]
    given = {id(slice_): public[index] for index, slice_ in enumerate(ours)}
    enabled = _read_gates(feature_gates, _minor(release), ours, ())

    return [
        Pool(
            pool_id=pool.pool_id,
            is_incomplete=pool.is_incomplete,
            invalid_reason=pool.invalid_reason,
            slices=tuple(given[id(slice_)] for slice_ in pool.slices),
        )
        for pool in pools.gather_pools(ours, _node(node), enabled)
    ]


def _minor(release: str) -> int:
    """Returns the minor number of a release such as 1.38. Raises ValueError for other texts."""
    match = _RELEASE.fullmatch(release)
    if match is None:
        raise ValueError(f"release {release!r}: expected one such as 1.37")
    return int(match["minor"])


def _read_gates(
    names: Iterable[str] | None,
    minor: int,
    slices: Iterable[scheduling.ResourceSlice],
    claims: Iterable[scheduling.ResourceClaim],
) -> features.Features:
    """Returns the enabled features. Raises ValueError if the allocator does not know a gate."""
    if names is None:
        return features.detect(slices, claims, features.release_defaults(minor))
    gates = frozenset([names] if isinstance(names, str) else names)
    unknown = gates - features.ALL
    if unknown:
        raise ValueError(
            f"no feature gate of the allocator is called {', '.join(sorted(unknown))}; "
            f"there are {', '.join(sorted(features.ALL))}"
        )
    return gates | features.release_rules(minor)


def _read_all(sources: Iterable[AnyObject], cls: type[Object], struct: type[T]) -> list[T]:
    return [_to_internal(foreign.read_object(source, cls), struct) for source in sources]


def _to_internal(obj: Object, struct: type[T]) -> T:
    """Returns the object as a struct of the allocator."""
    document: dict[str, Any] = {"metadata": {}} | foreign.to_document(obj)
    return msgspec.json.decode(msgspec.json.encode(document), type=struct)


def _node(source: AnyObject) -> core.Node:
    if isinstance(source, str):
        source = {"metadata": {"name": source}}
    document: Mapping[str, Any] = foreign.with_json_names(
        Shape("struct", struct=core.Node), foreign.to_document(source)
    )
    return msgspec.json.decode(msgspec.json.encode(document), type=core.Node)


def _plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))
