"""The options of a write: everything that a request says in addition to the object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from claimd.kubernetes.api.document import Document

# A check of the old and the new object. One of them may be absent. It raises a StatusError to
# refuse the write.
ValidateAdmission = Callable[[Document | None, Document | None], None]


def admit_all(old: Document | None, new: Document | None) -> None:
    """Accepts every write."""


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """The options of a create, an update, a patch or an apply."""

    field_manager: str
    dry_run: bool = False
    subresource: str = ""
    # The version of the request's object, if it is not the storage version.
    api_version: str = ""
    validate_admission: ValidateAdmission = admit_all


@dataclass(frozen=True, kw_only=True)
class DeleteOptions:
    """The options of a delete. `uid` and `resource_version` are preconditions."""

    uid: str | None = None
    resource_version: str | None = None
    # Background, Orphan or Foreground. If it is empty, the kind decides.
    propagation_policy: str = "Background"
    dry_run: bool = False
    validate_admission: ValidateAdmission = admit_all
    # None means the terminationGracePeriodSeconds of the pod.
    grace_period_seconds: int | None = None
