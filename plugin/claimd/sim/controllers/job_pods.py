"""The pods of a Job by state, and the ends of pods that the Job's status has not counted yet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from claimd.kubernetes.api.document import Document

from . import job_indexes, templates
from .job_spec import JobSpec
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


def read_count(pod: Document, annotation: str) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(annotation, "")
    return int(text) if text.isdecimal() else 0


def failures_of_index(pod: Document) -> int:
    return read_count(pod, FAILURE_COUNT) + read_count(pod, IGNORED_FAILURE_COUNT)


def _indexes_of(pods: Iterable[Document]) -> set[int]:
    indexes = set()
    for pod in pods:
        index = job_indexes.index_of(pod)
        if index is not None:
            indexes.add(index)
    return indexes


@dataclass(frozen=True, slots=True)
class UncountedEnds:
    """The ends of pods that the status has not counted yet. It lists them first and counts them
    later.
    """

    listed_succeeded: list[Uid]
    listed_failed: list[Uid]
    new_succeeded: list[Document]
    new_failed: list[Document]


class JobPods:
    """The pods of one Job, grouped by their state and by whether the status has counted them."""

    def __init__(self, objects: Objects, job: Document) -> None:
        self.job, self.before = job, status_of(job)
        self.spec = JobSpec(job)
        self.pods = templates.children(objects, "pods", job)
        alive = [pod for pod in self.pods if not has_ended(pod)]
        self.active = [pod for pod in alive if not is_terminating(pod)]
        self.terminating = [pod for pod in alive if is_terminating(pod)]

        self.ends = ends = self._uncounted_ends()
        self.succeeded_indexes = self._indexes("completedIndexes") | _indexes_of(ends.new_succeeded)
        self.failed_indexes = self._failed_indexes()
        self.replaced = self._replaced_by_index()

    def count_successes(self) -> int:
        """Returns the number of successes, with the listed and new ones. An indexed Job counts
        indexes.
        """
        if self.spec.is_indexed:
            return len(self.succeeded_indexes)
        counted = self.before.get("succeeded") or 0
        return counted + len(self.ends.listed_succeeded) + len(self.ends.new_succeeded)

    def count_failures(self) -> int:
        """Returns the number of failures, with the listed and new ones, except those the policy
        ignores.
        """
        counted = self.before.get("failed") or 0
        new = sum(map(self.spec.counts, self.ends.new_failed))
        return counted + len(self.ends.listed_failed) + new

    def _uncounted_ends(self) -> UncountedEnds:
        listed = self.before.get("uncountedTerminatedPods") or {}
        succeeded, failed = list(listed.get("succeeded") or ()), list(listed.get("failed") or ())
        known = {*succeeded, *failed}
        new_succeeded, new_failed = [], []
        for pod in self.pods:
            if not has_finalizer(pod) or uid_of(pod) in known:
                continue
            if not self.spec.has_valid_index(pod):
                continue
            if phase_of(pod) == "Succeeded":
                new_succeeded.append(pod)
            if self.spec.is_failed(pod):
                new_failed.append(pod)
        return UncountedEnds(succeeded, failed, new_succeeded, new_failed)

    def _indexes(self, field: str) -> set[int]:
        return job_indexes.parse(self.before.get(field), self.spec.completions or 0)

    # ------------------------------------------------------------ failures of single indexes

    def _failed_indexes(self) -> set[int]:
        failed = self._indexes("failedIndexes")
        if self.spec.index_limit is None:
            return failed
        for pod in self.pods:
            index = job_indexes.index_of(pod)
            if index is None or not has_finalizer(pod) or not self.spec.has_valid_index(pod):
                continue
            if not self.spec.is_failed(pod):
                continue
            # An index fails by the policy, or when its own retries are used up.
            action = self.spec.judge(pod).action
            spent = action != "Ignore" and read_count(pod, FAILURE_COUNT) >= self.spec.index_limit
            if action == "FailIndex" or spent:
                failed.add(index)
        return failed

    def _replaced_by_index(self) -> dict[int, Document]:
        """Returns the latest failed pod of each index without a successor.

        The successor continues the failure count of this pod.
        """
        latest_failed: dict[int, Document] = {}
        if self.spec.index_limit is None:
            return latest_failed

        settled = self.succeeded_indexes | self.failed_indexes
        settled |= _indexes_of(self.active)
        for pod in self.pods:
            index = job_indexes.index_of(pod)
            if index is None or index in settled or not self.spec.has_valid_index(pod):
                continue
            if not has_finalizer(pod) or not self.spec.is_failed(pod):
                continue
            latest = latest_failed.get(index)
            if latest is None or failures_of_index(pod) >= failures_of_index(latest):
                latest_failed[index] = pod
        return latest_failed
