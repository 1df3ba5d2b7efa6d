"""The spec of a Job: what it counts, and which pods count as failed."""

from __future__ import annotations

from claimd.kubernetes.api.document import Document

from . import job_failures, job_indexes
from .objects import has_ended, is_terminating, status_of


class JobSpec:
    """The spec of one Job, and the conclusions from it for a pod."""

    def __init__(self, job: Document) -> None:
        self.document: Document = job["spec"]

    @property
    def template(self) -> Document:
        """The template of the Job's pods."""
        template: Document = self.document["template"]
        return template

    @property
    def is_indexed(self) -> bool:
        return bool(self.document.get("completionMode") == "Indexed")

    @property
    def completions(self) -> int | None:
        """The number of successes that the Job needs; None if the first success ends it."""
        completions: int | None = self.document.get("completions")
        return completions

    @property
    def is_suspended(self) -> bool:
        return bool(self.document.get("suspend"))

    @property
    def index_limit(self) -> int | None:
        """The number of retries of each index; None if retries are counted for the whole Job."""
        limit: int | None = self.document.get("backoffLimitPerIndex")
        return limit

    @property
    def waits_for_end(self) -> bool:
        """True if a pod is replaced only after it has ended, and not while it terminates."""
        return bool(self.document.get("podReplacementPolicy") == "Failed")

    def has_valid_index(self, pod: Document) -> bool:
        """Returns True if the pod's index is one of the Job, or if the Job has no indexes."""
        if not self.is_indexed:
            return True
        index = job_indexes.index_of(pod)
        return index is not None and index < (self.completions or 0)

    def is_failed(self, pod: Document) -> bool:
        """Returns True if the pod has failed.

        A terminating pod counts, unless the Job replaces only failed pods.
        """
        if has_ended(pod):
            return bool(status_of(pod).get("phase") == "Failed")
        return is_terminating(pod) and not self.waits_for_end

    def judge(self, pod: Document) -> job_failures.Verdict:
        """Returns the verdict of the Job's policy on the failure of the pod."""
        return job_failures.judge(self.document.get("podFailurePolicy"), pod)

    def counts(self, pod: Document) -> bool:
        """Returns True if the policy does not ignore the failure of the pod."""
        return self.judge(pod).action != "Ignore"
