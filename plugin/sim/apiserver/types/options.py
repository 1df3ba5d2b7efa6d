"""What a request says besides the object: who writes, with which preconditions, and what may refuse
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....api.document import Document

ValidateAdmission = Callable[
    [Document | None, Document | None], None
]  # the old and the new object; raises what refuses them


def admit_all(old: Document | None, new: Document | None) -> None:
    """Admits it."""


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """What a request says besides the object."""

    field_manager: str
    dry_run: bool = False
    subresource: str = ""  # status, or nothing
    api_version: str = ""  # in which it was said, if not in the one that is kept
    validate_admission: ValidateAdmission = admit_all


@dataclass(frozen=True, kw_only=True)
class DeleteOptions:
    uid: str | None = None  # preconditions
    resource_version: str | None = None
    propagation_policy: str = "Background"  # Orphan, Background, Foreground
    dry_run: bool = False
    validate_admission: ValidateAdmission = admit_all
    grace_period_seconds: int | None = (
        None  # seconds that a pod on a node has; its own say if it is not said
    )
