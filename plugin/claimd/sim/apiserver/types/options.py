"""What a write says besides the object: who writes, and what may refuse it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from claimd.kubernetes.api.document import Document

# Given the old and the new object, either of which may not be there; raises what refuses the write.
ValidateAdmission = Callable[[Document | None, Document | None], None]


def admit_all(old: Document | None, new: Document | None) -> None:
    """Refuses nothing."""


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """Of a create, an update, a patch or an apply."""

    field_manager: str
    dry_run: bool = False
    subresource: str = ""
    api_version: str = ""  # that the request is in, if not in the storage version
    validate_admission: ValidateAdmission = admit_all


@dataclass(frozen=True, kw_only=True)
class DeleteOptions:
    uid: str | None = None  # a precondition, as the next
    resource_version: str | None = None
    # Background, Orphan or Foreground; empty where the kind decides.
    propagation_policy: str = "Background"
    dry_run: bool = False
    validate_admission: ValidateAdmission = admit_all
    grace_period_seconds: int | None = None  # None: what the pod itself says
