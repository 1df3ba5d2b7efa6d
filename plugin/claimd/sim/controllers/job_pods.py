"""The pods of a Job by state, and which of their ends the Job's status has not counted yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from claimd.kubernetes.api.document import Document

from . import job_failures, job_indexes, templates
from .objects import Objects, has_ended, is_terminating, status_of

FINALIZER = "batch.kubernetes.io/job-tracking"  # on a pod whose end is not counted yet
FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURE_COUNT = "batch.kubernetes.io/job-index-ignored-failure-count"

Uid = str


def has_finalizer(pod: Document) -> bool:
    return FINALIZER in (pod["metadata"].get("finalizers") or ())


def uid_of(pod: Document) -> Uid:
    return str(pod["metadata"]["uid"])


def phase_of(pod: Document) -> str:
    return str(status_of(pod).get("phase", ""))


def annotated(pod: Document, annotation: str) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(annotation, "")
    return int(text) if text.isdecimal() else 0


def failures_of_index(pod: Document) -> int:
    return annotated(pod, FAILURE_COUNT) + annotated(pod, IGNORED_FAILURE_COUNT)


def _indexes_of(pods: Iterable[Document]) -> set[int]:
    indexes = set()
    for pod in pods:
        index = job_indexes.index_of(pod)
        if index is not None:
            indexes.add(index)
    return indexes


class JobPods:
    """The pods of one Job, grouped by their state and by whether the status has counted them."""

    def __init__(self, objects: Objects, job: Document) -> None:
        self.job = job
        self.spec, self.before = job["spec"], status_of(job)
        self.indexed = self.spec.get("completionMode") == "Indexed"
        self.completions: int | None = self.spec.get("completions")
        self.suspended = bool(self.spec.get("suspend"))
        self.per_index: int | None = self.spec.get("backoffLimitPerIndex")

        self.pods = templates.children(objects, "pods", job)
        alive = [pod for pod in self.pods if not has_ended(pod)]
        self.active = [pod for pod in alive if not is_terminating(pod)]
        self.terminating = [pod for pod in alive if is_terminating(pod)]

        # Pods that the status has neither counted nor listed yet.
        uncounted = self.before.get("uncountedTerminatedPods") or {}
        self.uncounted_succeeded: list[Uid] = list(uncounted.get("succeeded") or ())
        self.uncounted_failed: list[Uid] = list(uncounted.get("failed") or ())
        named = {*self.uncounted_succeeded, *self.uncounted_failed}
        new = [pod for pod in self.pods if has_finalizer(pod) and uid_of(pod) not in named]
        new = [pod for pod in new if self.has_valid_index(pod)]
        self.new_succeeded = [pod for pod in new if phase_of(pod) == "Succeeded"]
        self.new_failed = [pod for pod in new if self.is_failed(pod)]

        self.counted_indexes = self._indexes("completedIndexes")
        self.succeeded_indexes = self.counted_indexes | _indexes_of(self.new_succeeded)
        self.failed_indexes = self._failed_indexes()
        self.replaced = self._replaced_by_index()

        # An indexed Job counts indexes, any other Job counts pods.
        self.succeeded = self._count("succeeded", self.uncounted_succeeded, self.new_succeeded)
        if self.indexed:
            self.succeeded = len(self.succeeded_indexes)
        counting = [pod for pod in self.new_failed if self.judge(pod).action != "Ignore"]
        self.failed = self._count("failed", self.uncounted_failed, counting)

    def _count(self, name: str, uncounted: Sequence[Uid], new: Sequence[Document]) -> int:
        return (self.before.get(name) or 0) + len(uncounted) + len(new)

    def _indexes(self, field: str) -> set[int]:
        return job_indexes.parse(self.before.get(field), self.completions or 0)

    def has_valid_index(self, pod: Document) -> bool:
        if not self.indexed:
            return True
        index = job_indexes.index_of(pod)
        return index is not None and index < (self.completions or 0)

    def is_failed(self, pod: Document) -> bool:
        """Returns True if the pod has failed. A terminating pod counts unless the Job replaces only
        failed pods."""
        if has_ended(pod):
            return phase_of(pod) == "Failed"
        return is_terminating(pod) and not self.waits_for_end()

    def waits_for_end(self) -> bool:
        return bool(self.spec.get("podReplacementPolicy") == "Failed")

    def judge(self, pod: Document) -> job_failures.Verdict:
        return job_failures.judge(self.spec.get("podFailurePolicy"), pod)

    # ------------------------------------------------------------ failures of single indexes

    def _failed_indexes(self) -> set[int]:
        failed = self._indexes("failedIndexes")
        if self.per_index is None:
            return failed
        for pod in self.pods:
            index = job_indexes.index_of(pod)
            if index is None or not has_finalizer(pod) or not self.has_valid_index(pod):
                continue
            if not self.is_failed(pod):
                continue
            # An index fails by the policy, or when its own retries are used up.
            action = self.judge(pod).action
            spent = action != "Ignore" and annotated(pod, FAILURE_COUNT) >= self.per_index
            if action == "FailIndex" or spent:
                failed.add(index)
        return failed

    def _replaced_by_index(self) -> dict[int, Document]:
        """Returns the latest failed pod of each index without a successor; the successor continues
        its failure count."""
        latest_failed: dict[int, Document] = {}
        if self.per_index is None:
            return latest_failed

        settled = self.succeeded_indexes | self.failed_indexes
        settled |= _indexes_of(self.active)
        for pod in self.pods:
            index = job_indexes.index_of(pod)
            if index is None or index in settled or not self.has_valid_index(pod):
                continue
            if not has_finalizer(pod) or not self.is_failed(pod):
                continue
            latest = latest_failed.get(index)
            if latest is None or failures_of_index(pod) >= failures_of_index(latest):
                latest_failed[index] = pod
        return latest_failed
