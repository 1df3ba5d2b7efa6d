"""Defaults and validation of CronJobs."""

from __future__ import annotations

from claimd.kubernetes.api.document import Document
from claimd.sim import cron_schedule

from . import jobs
from .field_errors import FieldErrors

CONCURRENCY = ("Allow", "Forbid", "Replace")
# Characters. A Job's name has the scheduled minute in addition.
MAX_NAME = 52


def with_defaults(cron_job: Document) -> Document:
    given = cron_job.get("spec")
    if not isinstance(given, dict):
        return cron_job
    spec: Document = {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    } | {name: value for name, value in given.items() if value not in (None, "")}

    template = spec.get("jobTemplate")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        # The defaults that a Job gets at its own creation are not part of the template.
        wanted = jobs.template_with_defaults(template["spec"])
        spec["jobTemplate"] = template | {"spec": wanted}
    return cron_job | {"spec": spec}


def validate(errors: FieldErrors, cron_job: Document, old: Document | None) -> None:
    spec, name = cron_job.get("spec") or {}, cron_job["metadata"].get("name") or ""
    schedule, zone = spec.get("schedule"), spec.get("timeZone")
    if not schedule:
        errors.required("spec.schedule")
    elif "TZ" in schedule:
        why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        errors.invalid("spec.schedule", schedule, why)
    else:
        _validate_schedule(errors, schedule)

    if zone is not None:
        _validate_zone(errors, zone)

    policy = spec.get("concurrencyPolicy")
    if policy not in CONCURRENCY:
        errors.not_supported("spec.concurrencyPolicy", policy, CONCURRENCY)
    limits = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    for field in limits:
        value = spec.get(field)
        if value is not None and value < 0:
            errors.invalid(f"spec.{field}", value, "must be greater than or equal to 0")

    # The template is validated as the Job that it will become.
    template = (spec.get("jobTemplate") or {}).get("spec") or {}
    if template.get("manualSelector"):
        path = "spec.jobTemplate.spec.manualSelector"
        errors.not_supported(path, template["manualSelector"], ("nil", "false"))
    jobs.validate_spec(errors, jobs.spec_with_defaults(template), "spec.jobTemplate.spec")
    if old is None and len(name) > MAX_NAME:
        errors.invalid("metadata.name", name, f"must be no more than {MAX_NAME} characters")


def _validate_schedule(errors: FieldErrors, schedule: str) -> None:
    try:
        cron_schedule.parse(schedule)
    except cron_schedule.ScheduleError as error:
        errors.invalid("spec.schedule", schedule, str(error))


def _validate_zone(errors: FieldErrors, zone: str) -> None:
    try:
        cron_schedule.load_zone(zone)
    except cron_schedule.ScheduleError as error:
        errors.invalid("spec.timeZone", zone, str(error))
