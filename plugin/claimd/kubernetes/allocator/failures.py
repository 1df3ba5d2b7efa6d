"""The exceptions of an allocation. A plain "no" is not one of them."""

from __future__ import annotations


class AllocationError(Exception):
    """The allocator cannot decide, because of a mistake in the claims, classes or slices.

    If `node_only` is True, another node may still succeed. Otherwise the attempt to schedule the
    pod is over. `detail` is for people and is not among the words of Kubernetes' own allocator.
    """

    def __init__(self, message: str, *, node_only: bool = False, detail: str = "") -> None:
        super().__init__(message)
        self.node_only = node_only
        self.detail = detail


class CancelledError(AllocationError):
    """The caller's `cancelled` has returned True."""


class TooManyDevicesError(Exception):
    """A claim would get more than 32 devices in this branch. It never leaves the search."""
