"""The CronJob controller: creates a Job at each scheduled time, and deletes old Jobs.

A Job's name contains the minute that it is for. A retry therefore creates no second Job, and a
Job that the status does not list yet is recognized by its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from claimd.common import timestamps
from claimd.kubernetes.api.document import Document

from .. import cron_schedule, requests
from ..cron_schedule import Schedule
from ..requests import Request
from . import job_pods, templates
from .objects import Objects, controller_reference, is_terminating, status_of

SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"  # annotation of a Job
MANY = 100  # missed times before a warning
LATER = 0.1  # seconds that a Job starts after its time, as clocks differ


def sync(objects: Objects, now: float) -> tuple[list[Request], float | None]:
    """Returns the requests to send now, and the seconds until the next Job is due.

    Every round repeats an Event as long as its cause lasts; the caller removes repetitions.
    """
    wanted: list[Request] = []
    waits = []
    for cron_job in objects["cronjobs"].values():
        look = _Look(objects, cron_job, now)
        wanted += look.step()
        if look.wait is not None:
            waits.append(look.wait)
    return wanted, min(waits, default=None)


class _Look:
    """One CronJob at one moment, and the next step for it."""

    def __init__(self, objects: Objects, cron_job: Document, now: float) -> None:
        self.cron_job, self.now = cron_job, now
        self.name = templates.name_of(cron_job)
        self.spec, self.before = cron_job["spec"], status_of(cron_job)
        self.jobs = list(templates.children(objects, "jobs", cron_job))
        self.active: list[Document] = list(self.before.get("active") or ())
        self.wait: float | None = None

    def step(self) -> Iterator[Request]:
        """Yields the status if it has changed; otherwise deletes old Jobs and starts the next one."""
        status, events = self._status()
        yield from events
        if templates.without_empty(status) != templates.without_empty(self.before):
            # Write the status first; the next round does the rest.
            self.wait = 0.0
            body = self.cron_job | {"status": status}
            yield requests.update("cronjobs", body, "status")
            return
        if is_terminating(self.cron_job):
            return

        yield from self._forget_old()
        if not self.spec.get("suspend"):
            yield from self._start()

    # ------------------------------------------------------------ status

    def _status(self) -> tuple[Document, list[Request]]:
        """Returns the status that matches the Jobs, and Events about the changes."""
        events = []
        by_uid = {job_pods.uid_of(job): job for job in self.jobs}
        active = []
        for reference in self.active:
            job = by_uid.get(reference["uid"])
            if job is None:
                note = f"Active job went missing: {reference['name']}"
                events.append(self._event("MissingJob", note))
            elif condition := _end_of(job):
                note = f"Saw completed job: {reference['name']}, condition: {condition}"
                events.append(self._event("SawCompletedJob", note))
            else:
                active.append(reference)

        # Jobs that the status does not list were created by a round that failed to write it, or by
        # someone else.
        known = {reference["uid"] for reference in self.active}
        for job in self.jobs:
            if job_pods.uid_of(job) in known or _end_of(job):
                continue
            if self._scheduled_time(job) is None:
                note = "Saw a job that the controller did not create or forgot:"
                note = f"{note} {templates.name_of(job)}"
                events.append(self._event("UnexpectedJob", note, warning=True))
            else:
                active.append(_reference(job))

        status = dict(self.before) | {"active": active}
        times = map(self._scheduled_time, self.jobs)
        last = max([self._last_time() or 0.0, *(time or 0.0 for time in times)])
        if last:
            status["lastScheduleTime"] = timestamps.rfc3339(last)
        ends = [str(status_of(job).get("completionTime") or "") for job in self.jobs]
        if end := max([str(self.before.get("lastSuccessfulTime") or ""), *ends]):
            status["lastSuccessfulTime"] = end
        if not active:
            del status["active"]
        return status, events

    def _scheduled_time(self, job: Document) -> float | None:
        """Returns the time that this controller created the Job for, or None for any other Job."""
        text = (job["metadata"].get("annotations") or {}).get(SCHEDULED)
        minute = templates.name_of(job).removeprefix(f"{self.name}-")
        if not text or not minute.isdecimal():
            return None
        return requests.parse_time(text)

    def _last_time(self) -> float | None:
        text = self.before.get("lastScheduleTime")
        return requests.parse_time(text) if text else None

    # ------------------------------------------------------------ the next Job

    def _start(self) -> Iterator[Request]:
        try:
            schedule = cron_schedule.parse(self.spec["schedule"], self.spec.get("timeZone") or "")
        except cron_schedule.ScheduleError as error:
            note = f'unparseable schedule: "{self.spec["schedule"]}" : {error}'
            yield self._event("UnparseableSchedule", note, warning=True)
            return

        deadline = self.spec.get("startingDeadlineSeconds")
        time, missed = self._most_recent(schedule, deadline)
        following = schedule.next(self.now)
        if following is not None:
            self.wait = following + LATER - self.now
        if time is None:
            return
        if missed > MANY:
            note = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds"
            note = f"{note} or check clock skew"
            yield self._event("TooManyMissedTimes", note, warning=True)

        if deadline is not None and time + deadline < self.now:
            at = datetime.fromtimestamp(time, schedule.zone).strftime("%a, %d %b %Y %H:%M:%S UTC")
            note = f"Missed scheduled time to start a job: {at}"
            yield self._event("MissSchedule", note, warning=True)
        elif time != self._last_time():
            yield from self._create(time, schedule)

    def _most_recent(self, schedule: Schedule, deadline: int | None) -> tuple[float | None, int]:
        """Returns the latest scheduled time without a Job, and how many times were missed."""
        created = requests.parse_time(self.cron_job["metadata"]["creationTimestamp"])
        earliest = self._last_time() or created
        if deadline is not None:
            earliest = max(earliest, self.now - deadline)

        first = schedule.next(earliest)
        if first is None or self.now < first:
            return None, 0
        second = schedule.next(first)
        if second is None or self.now < second:
            return first, 0

        # Skip to the last few times, instead of going through a long absence minute by minute.
        between = second - first
        missed = int((self.now - first) // between) + 1
        latest, following = None, schedule.next(first + (missed - 2) * between)
        while following is not None and following <= self.now:
            latest, following = following, schedule.next(following)
        return latest, missed

    def _create(self, time: float, schedule: Schedule) -> Iterator[Request]:
        policy = self.spec.get("concurrencyPolicy")
        if policy == "Forbid" and self.active:
            note = "Not starting job because prior execution is running"
            yield self._event(
                "JobAlreadyActive", f"{note} and concurrency policy is Forbid", warning=False
            )
            return

        if policy == "Replace":
            uids = {reference["uid"] for reference in self.active}
            for job in self.jobs:
                if job_pods.uid_of(job) in uids and not is_terminating(job):
                    yield self._delete(job)

        name = f"{self.name}-{int(time) // 60}"
        if any(templates.name_of(job) == name for job in self.jobs):
            return
        request = self._job(name, datetime.fromtimestamp(time, schedule.zone))
        yield requests.with_then(request, self._event("SuccessfulCreate", f"Created job {name}"))

    def _job(self, name: str, time: datetime) -> Request:
        template = self.spec["jobTemplate"]
        metadata = template.get("metadata") or {}
        reference = controller_reference("batch/v1", "CronJob", self.cron_job)
        at = time.isoformat(timespec="seconds").replace("+00:00", "Z")
        namespace = self.cron_job["metadata"]["namespace"]
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": metadata.get("labels") or {},
                "annotations": (metadata.get("annotations") or {}) | {SCHEDULED: at},
                "ownerReferences": [reference | {"blockOwnerDeletion": True}],
            },
            "spec": template["spec"],
        }
        return Request(method="POST", resource="jobs", namespace=namespace, body=body)

    # ------------------------------------------------------------ old Jobs

    def _forget_old(self) -> Iterator[Request]:
        """Yields deletions of the oldest finished Jobs beyond the two history limits."""
        limits = {
            "Complete": self.spec.get("successfulJobsHistoryLimit", 3),
            "Failed": self.spec.get("failedJobsHistoryLimit", 1),
        }
        for condition, limit in limits.items():
            ended = [job for job in self.jobs if _end_of(job) == condition]
            ended.sort(
                key=lambda job: (status_of(job).get("startTime") or "", templates.name_of(job))
            )
            for job in ended[: max(len(ended) - limit, 0)]:
                if not is_terminating(job):
                    yield self._delete(job)

    def _delete(self, job: Document) -> Request:
        request = requests.delete("jobs", job, propagationPolicy="Background")
        note = f"Deleted job {templates.name_of(job)}"
        return requests.with_then(request, self._event("SuccessfulDelete", note))

    def _event(self, reason: str, note: str, *, warning: bool = False) -> Request:
        return templates.record_event("CronJob", self.cron_job, reason, note, warning=warning)


def _end_of(job: Document) -> str:
    """Returns Complete or Failed, or an empty text if the Job has not finished."""
    for condition in status_of(job).get("conditions") or ():
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return str(condition["type"])
    return ""


def _reference(job: Document) -> Document:
    metadata = job["metadata"]
    names = ("namespace", "name", "uid", "resourceVersion")
    return {"apiVersion": "batch/v1", "kind": "Job"} | {name: metadata[name] for name in names}
