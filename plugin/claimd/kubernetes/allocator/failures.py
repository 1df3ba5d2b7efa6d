"""What can go wrong in an allocation other than "no". Only exceptions."""

from __future__ import annotations


class AllocationError(Exception):
    """The claims, classes or slices are such that no answer can be given.

    With `node_only` another node may well do; without it the attempt to place the pod is over.
    """

    def __init__(self, message: str, *, node_only: bool = False) -> None:
        super().__init__(message)
        self.node_only = node_only


class CancelledError(AllocationError):
    """The caller's `cancelled` said so."""


class TooManyDevicesError(Exception):
    """A claim would get more than 32 devices on this branch of the search. Never leaves the search."""
