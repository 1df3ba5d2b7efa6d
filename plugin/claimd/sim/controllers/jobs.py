"""The Job controller: runs pods until enough of them have succeeded or too many have failed.

A pod keeps a finalizer until its end is counted, so that each end is counted exactly once. First
the status lists the pod, then the finalizer is removed, then the count in the status grows. Each
round makes one of these steps, and the next round makes the next one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from claimd.common import timestamps
from claimd.kubernetes.api.document import Document

from .. import requests
from ..requests import STRATEGIC_MERGE_PATCH, Request
from . import job_failures, job_indexes, job_pods, templates
from .job_failures import Backoff
from .objects import Objects, has_ended, is_terminating, name_suffix, status_of

CONTROLLER = "kubernetes.io/job-controller"  # the value of `managedBy` for this controller
MOST_PODS = 500  # created or deleted in one round
MOST_UNCOUNTED = 500
NAME_LIMIT = 58  # the longest prefix of a pod's name before the random suffix
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}

Uid = str
_SUSPENDED, _RESUMED = ("JobSuspended", "Job suspended"), ("JobResumed", "Job resumed")
_COMPLETED = ("CompletionsReached", "Reached expected number of succeeded pods")
_BACKOFF_LIMIT = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
_DEADLINE = ("DeadlineExceeded", "Job was active longer than specified deadline")
_FAILED_INDEXES = ("FailedIndexes", "Job has failed indexes")
_TOO_MANY_INDEXES = (
    "MaxFailedIndexesExceeded",
    "Job has exceeded the specified maximal number of failed indexes",
)


def backoffs(objects: Objects, before: Mapping[Uid, Backoff]) -> dict[Uid, Backoff]:
    """Returns the back-off state of every unfinished Job, which the next round needs."""
    result = {}
    for job in objects["jobs"].values():
        if _is_ours(job) and not is_finished(job):
            look = _Look(objects, job, Backoff(), 0.0)
            backoff = before.get(job["metadata"]["uid"], Backoff())
            result[job["metadata"]["uid"]] = backoff.with_pods(
                look.ends.new_succeeded, look.ends.new_failed
            )
    return result


def sync(
    objects: Objects, memory: Mapping[Uid, Backoff], now: float
) -> tuple[list[Request], float | None]:
    """Returns the requests to send now, and the seconds until something is due without a change."""
    wanted = list(_release(objects))
    waits = []
    for job in objects["jobs"].values():
        if _is_ours(job) and not is_finished(job) and templates.has_template(job):
            look = _Look(objects, job, memory.get(job["metadata"]["uid"], Backoff()), now)
            wanted += look.step()
            waits += look.waits
    return wanted, min(waits, default=None)


def is_finished(job: Document) -> bool:
    return bool({"Complete", "Failed"} & conditions_of(job).keys())


def conditions_of(job: Document) -> dict[str, Document]:
    """Returns the Job's true conditions by type."""
    listed = status_of(job).get("conditions") or ()
    return {condition["type"]: condition for condition in listed if condition["status"] == "True"}


def _is_ours(job: Document) -> bool:
    return job["spec"].get("managedBy") in (None, CONTROLLER)


# ---------------------------------------------------------------- pods that are no longer counted


def _release(objects: Objects) -> Iterator[Request]:
    """Removes the finalizer from pods of Jobs that are gone or have ended."""
    by_uid = {job["metadata"]["uid"]: job for job in objects["jobs"].values()}
    for pod in objects["pods"].values():
        if not job_pods.has_finalizer(pod):
            continue
        controller = _controller_of(pod)
        if controller and (controller["kind"], controller["apiVersion"]) != ("Job", "batch/v1"):
            continue
        job = by_uid.get(controller["uid"]) if controller else None
        if job is None or (_is_ours(job) and is_finished(job)):
            yield _without_finalizer(pod)


def _controller_of(pod: Document) -> Document | None:
    for reference in pod["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return reference  # type: ignore[no-any-return]
    return None


def _without_finalizer(pod: Document, then: Request | None = None) -> Request:
    metadata = pod["metadata"]
    changed = {"uid": metadata["uid"], "$deleteFromPrimitiveList/finalizers": [job_pods.FINALIZER]}
    return Request(
        method="PATCH",
        resource="pods",
        namespace=metadata["namespace"],
        name=metadata["name"],
        content_type=STRATEGIC_MERGE_PATCH,
        body={"metadata": changed},
        then=then,
    )


# ---------------------------------------------------------------- one Job


class _Look(job_pods.JobPods):
    """One Job at one moment, and the next step for it."""

    def __init__(self, objects: Objects, job: Document, backoff: Backoff, now: float) -> None:
        super().__init__(objects, job)
        self.backoff, self.now = backoff, now
        self.waits: list[float] = []  # seconds until something is due

    # ------------------------------------------------------------ the step

    def step(self) -> Iterator[Request]:
        """Yields the writes of pods, then the status. Removes finalizers when the status is
        current.
        """
        start = self.before.get("startTime")
        if not start and not self.spec.is_suspended:
            start = timestamps.rfc3339(self.now)

        # A decided Job deletes its pods; a running one creates or removes some.
        outcome = self._outcome(start)
        writes: list[Request] = []
        if outcome is not None:
            gone, made = list(self.active), 0
            writes += [self._delete(pod, keeps_finalizer=True) for pod in gone]
        else:
            gone, made = self._manage(writes)
            active = len(self.active) - len(gone) + made
            if self._is_complete(active):
                outcome = ("SuccessCriteriaMet", *_COMPLETED)
        yield from writes

        # The status is written after the pods, and only if it differs.
        status = self._status(outcome, start, gone, made)
        if self._differs(status):
            yield self._write(status)
        elif not gone:
            # The status now counts these pods, so their finalizers can go.
            for pod in self.pods:
                if job_pods.has_finalizer(pod) and self._is_settled(pod, outcome):
                    yield _without_finalizer(pod)

    def _outcome(self, start: str | None) -> tuple[str, str, str] | None:
        """Returns the deciding condition with reason and message. An earlier decision is final."""
        conditions = conditions_of(self.job)
        for type_ in ("SuccessCriteriaMet", "FailureTarget"):
            if type_ in conditions:
                condition = conditions[type_]
                return type_, condition.get("reason", ""), condition.get("message", "")

        for pod in self.pods:
            message = self.spec.judge(pod).message if self.spec.is_failed(pod) else ""
            if message:
                return "FailureTarget", "PodFailurePolicy", message

        failure = self._failure(start)
        if failure is not None:
            return ("FailureTarget", *failure)
        if self.spec.is_indexed:
            policy = self.spec.document.get("successPolicy")
            rule = job_indexes.met_rule(policy, self.spec.completions or 0, self.succeeded_indexes)
            if rule is not None:
                return "SuccessCriteriaMet", "SuccessPolicy", f"Matched rules at index {rule}"
        return None

    def _failure(self, start: str | None) -> tuple[str, str] | None:
        """Returns why the Job has failed, as reason and message, or None."""
        if (
            self.count_failures() > self.spec.document["backoffLimit"]
            or self._has_restarted_too_often()
        ):
            return _BACKOFF_LIMIT

        seconds = self.spec.document.get("activeDeadlineSeconds")
        if seconds is not None and start and not self.spec.is_suspended:
            wait = requests.parse_time(start) + seconds - self.now
            if wait <= 0:
                return _DEADLINE
            self.waits.append(wait)

        if self.spec.index_limit is None:
            return None
        most, failed = self.spec.document.get("maxFailedIndexes"), len(self.failed_indexes)
        if most is not None and failed > most:
            return _TOO_MANY_INDEXES
        if failed and failed + len(self.succeeded_indexes) >= (self.spec.completions or 0):
            return _FAILED_INDEXES
        return None

    def _has_restarted_too_often(self) -> bool:
        """Returns True if the restarts of containers exceed the limit.

        They count if `restartPolicy` is OnFailure.
        """
        if self.spec.template["spec"].get("restartPolicy") != "OnFailure":
            return False
        restarts = 0
        for pod in self.pods:
            if has_ended(pod):
                continue
            for field in ("initContainerStatuses", "containerStatuses"):
                statuses = status_of(pod).get(field) or ()
                restarts += sum(container.get("restartCount") or 0 for container in statuses)
        limit = self.spec.document["backoffLimit"]
        return bool(restarts > 0 if limit == 0 else restarts >= limit)

    def _is_complete(self, active: int) -> bool:
        if active:
            return False
        if self.spec.completions is None:
            return self.count_successes() > 0
        return self.count_successes() >= self.spec.completions

    # ------------------------------------------------------------ pods to make and to delete

    def _manage(self, writes: list[Request]) -> tuple[list[Document], int]:
        """Adds writes of pods. Returns the pods to delete and the number of created ones.

        Either no pods are deleted or none are created.
        """
        if is_terminating(self.job):
            return [], 0
        surplus = len(self.active) - self._wanted_count()
        gone = self._to_remove(max(surplus, 0))[:MOST_PODS]
        if gone or self.spec.is_suspended:
            writes += [self._delete(pod, keeps_finalizer=False) for pod in gone]
            return gone, 0

        # A Job that replaces only failed pods waits until terminating pods are gone.
        missing = -surplus
        if self.spec.waits_for_end:
            missing -= len(self.terminating)
        if missing <= 0:
            return [], 0
        if self.spec.index_limit is None:
            wait = self.backoff.remaining(self.now)
            if wait > 0:
                self.waits.append(wait)
                return [], 0

        missing = min(missing, MOST_PODS)
        indexes = self._pending_indexes(missing) if self.spec.is_indexed else [None] * missing
        made = [self._create(number, index) for number, index in enumerate(indexes)]
        writes += made
        return [], len(made)

    def _wanted_count(self) -> int:
        """Returns how many pods should run now."""
        if self.spec.is_suspended:
            return 0
        parallelism = int(self.spec.document.get("parallelism", 1))
        if self.spec.completions is None:
            # After the first success the running pods may end, and no new ones start.
            return len(self.active) if self.count_successes() else parallelism
        return max(min(self.spec.completions - self.count_successes(), parallelism), 0)

    def _to_remove(self, least: int) -> list[Document]:
        """Returns the pods to remove: first those with a duplicate or invalid index.

        Then come the pods whose loss costs least.
        """
        rest = sorted(self.active, key=_loss)
        if not self.spec.is_indexed:
            return rest[:least]

        # Of several pods with one index, the one that is most expensive to lose stays.
        kept: dict[int, Document] = {}
        misplaced = []
        for pod in reversed(rest):
            index = job_indexes.index_of(pod)
            if index is None or not self.spec.has_valid_index(pod) or index in kept:
                misplaced.append(pod)
            else:
                kept[index] = pod
        left = [pod for pod in rest if pod not in misplaced]
        return misplaced + left[: max(least - len(misplaced), 0)]

    def _pending_indexes(self, most: int) -> list[int]:
        """Returns the lowest indexes that no pod works on and whose back-off is over."""
        busy = self.succeeded_indexes | self.failed_indexes
        occupied = [*self.active, *(self.terminating if self.spec.waits_for_end else ())]
        for pod in occupied:
            index = job_indexes.index_of(pod)
            if index is not None:
                busy.add(index)

        free = (number for number in range(self.spec.completions or 0) if number not in busy)
        pending = list(itertools.islice(free, most))

        ready = []
        waits = []
        for number in pending:
            failed = self.replaced.get(number)
            wait = 0.0
            if failed is not None:
                failures = job_pods.failures_of_index(failed) + 1
                wait = job_failures.remaining(failures, job_failures.finished_at(failed), self.now)
            if wait > 0:
                waits.append(wait)
            else:
                ready.append(number)
        self.waits += waits
        return ready

    def _create(self, number: int, index: int | None) -> Request:
        name = templates.name_of(self.job)
        prefix = f"{name}-"[:NAME_LIMIT] if index is None else _indexed_prefix(name, index)
        suffix = name_suffix(f"{templates.revision(self.job)} {number}", 5)
        labels, annotations, more = {}, {}, {}
        if index is not None:
            labels = {job_indexes.ANNOTATION: str(index)}
            annotations = labels | self._failure_counts(index)
            more = _with_index(self.spec.template["spec"]) | {"hostname": f"{name}-{index}"}

        from_template = self.spec.template.get("metadata") or {}
        head = {
            "generateName": prefix,
            "annotations": (from_template.get("annotations") or {}) | annotations,
            "finalizers": list(
                dict.fromkeys([*(from_template.get("finalizers") or ()), job_pods.FINALIZER])
            ),
        }
        return templates.create_pod("Job", self.job, prefix + suffix, labels, more, **head)

    def _failure_counts(self, index: int) -> dict[str, str]:
        """Returns annotations that count the index's failures before the new pod."""
        if self.spec.index_limit is None:
            return {}
        pod = self.replaced.get(index)
        if pod is None:
            return {job_pods.FAILURE_COUNT: "0"}
        ignored = not self.spec.counts(pod)
        counts = {
            job_pods.FAILURE_COUNT: str(
                job_pods.read_count(pod, job_pods.FAILURE_COUNT) + (not ignored)
            )
        }
        if count := job_pods.read_count(pod, job_pods.IGNORED_FAILURE_COUNT) + ignored:
            counts[job_pods.IGNORED_FAILURE_COUNT] = str(count)
        return counts

    def _delete(self, pod: Document, *, keeps_finalizer: bool) -> Request:
        """Deletes the pod. A pod that must not count as failed loses its finalizer first."""
        deletion = templates.delete_pod("Job", self.job, pod)
        if keeps_finalizer or not job_pods.has_finalizer(pod):
            return deletion
        return _without_finalizer(pod, then=deletion)

    def _event(self, reason: str, note: str, *, warning: bool = False) -> Request:
        return templates.record_event("Job", self.job, reason, note, warning=warning)

    # ------------------------------------------------------------ status

    def _status(
        self,
        outcome: tuple[str, str, str] | None,
        start: str | None,
        gone: Sequence[Document],
        made: int,
    ) -> Document:
        """Returns the status after the pods in `gone` are deleted and `made` pods are created."""
        uids = {job_pods.uid_of(pod) for pod in gone}
        staying = [pod for pod in self.active if job_pods.uid_of(pod) not in uids]
        terminating = len(self.terminating) + len(gone)
        uncounted, counts = self._list_uncounted(outcome)

        conditions = {item["type"]: item for item in self.before.get("conditions") or ()}
        status = self.before | counts
        status |= {
            "active": len(staying) + made,
            "ready": sum(map(templates.is_ready, staying)),
            "terminating": terminating,
            "uncountedTerminatedPods": uncounted,
            "startTime": start,
        }
        if outcome is None:
            if not is_terminating(self.job):
                self._set_suspended(conditions, status)
        else:
            type_, reason, message = outcome
            final = "Failed" if type_ == "FailureTarget" else "Complete"
            self._set(conditions, type_, reason, message)
            if not gone and self._is_over(type_, uncounted):
                self._set(conditions, final, reason, message)
                if final == "Complete":
                    status["completionTime"] = timestamps.rfc3339(self.now)
        status["conditions"] = list(conditions.values())
        # Kubernetes leaves out counts that are zero.
        unsaid = {name for name in ("active", "succeeded", "failed") if not status[name]}
        return {name: value for name, value in status.items() if name not in unsaid}

    def _is_over(self, decided: str, uncounted: Document) -> bool:
        """Returns True if all pods have ended and all ends are counted."""
        if self.terminating or any(uncounted.values()) or decided not in conditions_of(self.job):
            return False
        return not any(map(job_pods.has_finalizer, self.pods))

    def _list_uncounted(self, outcome: tuple[str, str, str] | None) -> tuple[Document, Document]:
        """Returns the pods that the status must list, and the counts without them."""
        # A listed pod without its finalizer is now counted: it moves from the list to the count.
        held = {job_pods.uid_of(pod) for pod in self.pods if job_pods.has_finalizer(pod)}
        succeeded = [uid for uid in self.ends.listed_succeeded if uid in held]
        failed = [uid for uid in self.ends.listed_failed if uid in held]
        counts: Document = {
            "succeeded": (self.before.get("succeeded") or 0)
            + len(self.ends.listed_succeeded)
            - len(succeeded),
            "failed": (self.before.get("failed") or 0) + len(self.ends.listed_failed) - len(failed),
        }

        # A bounded number of pods is listed at once, so that the status stays small.
        room = MOST_UNCOUNTED - len(succeeded) - len(failed)
        if self.spec.is_indexed:
            counts["succeeded"] = len(self.succeeded_indexes)
            counts["completedIndexes"] = job_indexes.text(self.succeeded_indexes)
            if self.spec.index_limit is not None:
                counts["failedIndexes"] = job_indexes.text(self.failed_indexes)
        else:
            succeeded += [job_pods.uid_of(pod) for pod in self.ends.new_succeeded[:room]]
            room -= len(self.ends.new_succeeded[:room])
        failed += [job_pods.uid_of(pod) for pod in self._newly_failed(outcome)[:room]]

        named = {"succeeded": succeeded, "failed": failed}
        return {name: uids for name, uids in named.items() if uids}, counts

    def _newly_failed(self, outcome: tuple[str, str, str] | None) -> list[Document]:
        """Returns the failed pods that are not listed yet.

        When a Job fails, its running pods fail with it. Pods that are removed because the Job has
        succeeded have not failed.
        """
        failed = list(self.ends.new_failed)
        if outcome is not None and outcome[0] == "SuccessCriteriaMet":
            failed = [pod for pod in failed if has_ended(pod)]
        if outcome is not None and outcome[0] == "FailureTarget":
            uids = {*map(job_pods.uid_of, failed), *self.ends.listed_failed}
            for pod in (*self.active, *self.terminating):
                if (
                    job_pods.has_finalizer(pod)
                    and job_pods.uid_of(pod) not in uids
                    and self.spec.has_valid_index(pod)
                ):
                    failed.append(pod)

        failed = [pod for pod in failed if not self._is_delayed(pod, outcome)]
        return [pod for pod in failed if self.spec.counts(pod)]

    def _is_delayed(self, pod: Document, outcome: tuple[str, str, str] | None) -> bool:
        """Returns True if the failed pod must stay until its index has a new pod.

        The new pod continues the failure count.
        """
        if outcome is not None or is_terminating(self.job):
            return False
        index = job_indexes.index_of(pod)
        delayed = self.replaced.get(index) if index is not None else None
        return delayed is not None and job_pods.uid_of(delayed) == job_pods.uid_of(pod)

    def _is_settled(self, pod: Document, outcome: tuple[str, str, str] | None) -> bool:
        """Returns True if the status no longer needs the pod. Call this only if the status is
        current.
        """
        if is_terminating(self.job) or outcome is not None or job_pods.phase_of(pod) == "Succeeded":
            return True
        return self.spec.is_failed(pod) and not self._is_delayed(pod, outcome)

    def _set_suspended(self, conditions: dict[str, Document], status: Document) -> None:
        current = conditions.get("Suspended", {}).get("status")
        if self.spec.is_suspended and current != "True":
            self._set(conditions, "Suspended", *_SUSPENDED)
            status["startTime"] = None
        elif not self.spec.is_suspended and current == "True":
            self._set(conditions, "Suspended", *_RESUMED, holds="False")
            status["startTime"] = timestamps.rfc3339(self.now)

    def _set(
        self,
        conditions: dict[str, Document],
        type_: str,
        reason: str,
        message: str,
        holds: str = "True",
    ) -> None:
        if conditions.get(type_, {}).get("status") == holds:
            return
        moment = timestamps.rfc3339(self.now)
        conditions[type_] = {
            "type": type_,
            "status": holds,
            "lastProbeTime": moment,
            "lastTransitionTime": moment,
            "reason": reason,
            "message": message,
        }

    def _differs(self, status: Document) -> bool:
        return bool(templates.without_empty(status) != templates.without_empty(self.before))

    def _write(self, status: Document) -> Request:
        kept = {name: value for name, value in status.items() if value is not None}
        body = self.job | {"status": kept}
        write = requests.update("jobs", body, "status")
        event = self._announcement(status)
        return requests.with_then(write, event) if event is not None else write

    def _announcement(self, status: Document) -> Request | None:
        """Returns an Event about the first change of conditions that needs one, or None."""
        before = {
            condition["type"]: condition["status"]
            for condition in self.before.get("conditions") or ()
        }
        for condition in status["conditions"]:
            type_, holds = condition["type"], condition["status"]
            if before.get(type_) == holds:
                continue
            if type_ == "Suspended":
                reason, message = ("Suspended", "Job suspended")
                if holds == "False":
                    reason, message = ("Resumed", "Job resumed")
                return self._event(reason, message)
            if type_ == "Complete":
                return self._event("Completed", "Job completed")
            if type_ == "Failed":
                return self._event(condition["reason"], condition["message"], warning=True)
        return None


def _loss(pod: Document) -> tuple[bool, int, bool, float, float]:
    """Returns a sort key that is small for a pod whose loss costs little.

    Such a pod is unscheduled, not running, not ready, or young.
    """
    since = templates.ready_since(pod)
    created = requests.parse_time(pod["metadata"]["creationTimestamp"])
    phase = _PHASES.get(job_pods.phase_of(pod), 0)
    return bool(pod["spec"].get("nodeName")), phase, since is not None, -(since or 0.0), -created


def _indexed_prefix(name: str, index: int) -> str:
    end = f"-{index}-"
    return name[: NAME_LIMIT - len(end)] + end


def _with_index(spec: Document) -> Document:
    """Returns the containers with the variable that holds their completion index."""
    path = f"metadata.labels['{job_indexes.ANNOTATION}']"
    variable = {"name": job_indexes.VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}}
    changed: Document = {}
    for field in ("initContainers", "containers"):
        containers = []
        for container in spec.get(field) or ():
            env = container.get("env") or []
            if all(item["name"] != job_indexes.VARIABLE for item in env):
                containers.append(container | {"env": [*env, variable]})
            else:
                containers.append(container)
        if containers:
            changed[field] = containers
    return changed
