"""Jobs: their defaults, their generated selector, and their validation.

The checks have the order of a real server, so that errors are reported in the same order.
"""

from __future__ import annotations

from typing import Any

from claimd.kubernetes.api.document import Document

from ..types import selectors
from . import core_kinds, formats
from .field_errors import FieldErrors

NON_INDEXED, INDEXED = "NonIndexed", "Indexed"
TERMINATING_OR_FAILED, FAILED = "TerminatingOrFailed", "Failed"
JOB_NAME, CONTROLLER_UID = "batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"
LEGACY_JOB_NAME, LEGACY_CONTROLLER_UID = "job-name", "controller-uid"
BACKOFF_LIMIT = 6
NO_LIMIT = 2**31 - 1
# The limit for an indexed Job.
MAX_PARALLELISM = 100_000
# The most rules of a policy.
MAX_RULES = 20

_NUMBERS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_IMMUTABLE = (
    "selector",
    "template",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
# The fields of the template that may change while a Job is suspended and has no running pods.
_OPEN_WHILE_SUSPENDED = ("affinity", "nodeSelector", "tolerations", "schedulingGates")
_RESTART_POLICIES = '"OnFailure", "Never"'
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")

# ---------------------------------------------------------------- defaults


def with_defaults(job: Document) -> Document:
    spec = job.get("spec")
    if not isinstance(spec, dict):
        return job

    changed = {"spec": spec_with_defaults(spec)}
    metadata, template = job["metadata"], spec.get("template")
    if isinstance(template, dict) and not metadata.get("labels"):
        labels = (template.get("metadata") or {}).get("labels")
        if labels:
            changed["metadata"] = metadata | {"labels": labels}
    return job | changed


def spec_with_defaults(spec: Document) -> Document:
    given = {name: value for name, value in spec.items() if value is not None}
    defaults: Document = {
        "parallelism": 1,
        "backoffLimit": BACKOFF_LIMIT if "backoffLimitPerIndex" not in given else NO_LIMIT,
        "completionMode": NON_INDEXED,
        "suspend": False,
        "podReplacementPolicy": FAILED if "podFailurePolicy" in given else TERMINATING_OR_FAILED,
        "manualSelector": False,
    }
    # A Job with only parallelism is a work queue, which has no number of completions.
    if "completions" not in given and "parallelism" not in given:
        defaults["completions"] = 1
    if "template" in given:
        given["template"] = core_kinds.template_with_defaults(given["template"])
    return defaults | given


def with_selector(job: Document) -> Document:
    """Returns the Job with a unique selector, unless it asks for a manual one.

    The pods get the labels that the selector matches. Existing values of these labels are kept, so
    that the validation can report them.
    """
    spec = job.get("spec") or {}
    if spec.get("manualSelector") or not isinstance(spec.get("template"), dict):
        return job

    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    metadata = spec["template"].get("metadata") or {}
    labels = _generated_labels(name, uid) | (metadata.get("labels") or {})
    selector = spec.get("selector") or {}
    wanted = {CONTROLLER_UID: uid} | (selector.get("matchLabels") or {})
    changed = {
        "template": spec["template"] | {"metadata": metadata | {"labels": labels}},
        "selector": selector | {"matchLabels": wanted},
    }
    return job | {"spec": spec | changed}


def _generated_labels(name: str, uid: str) -> dict[str, str]:
    return {
        LEGACY_JOB_NAME: name,
        JOB_NAME: name,
        LEGACY_CONTROLLER_UID: uid,
        CONTROLLER_UID: uid,
    }


# ---------------------------------------------------------------- validation


def validate(errors: FieldErrors, job: Document, old: Document | None) -> None:
    spec = job.get("spec") or {}
    if old is None:
        _validate_generated_selector(errors, job)
    validate_spec(errors, spec, "spec")
    _validate_selector(errors, spec, "spec")
    if old is not None:
        _validate_changes(errors, spec, old)

    completions = spec.get("completions") or 0
    if spec.get("completionMode") == INDEXED and completions > 0:
        # The longest host name of its pods must be a valid label.
        hostname = f"{job['metadata']['name']}-{completions - 1}"
        if formats.dns_label(hostname):
            why = f"will not able to create pod with invalid DNS label: {hostname}"
            errors.invalid("metadata.name", job["metadata"]["name"], why)


def validate_spec(errors: FieldErrors, spec: Document, path: str) -> None:
    """Validates everything but the selector."""
    for name in _NUMBERS:
        value = spec.get(name)
        if value is not None and value < 0:
            errors.invalid(f"{path}.{name}", value, "must be greater than or equal to 0")

    _validate_indexes(errors, spec, path)
    _validate_policies(errors, spec, path)
    template_path = f"{path}.template.spec"
    pod_spec = (spec.get("template") or {}).get("spec") or {}
    core_kinds.validate_pod_spec(errors, pod_spec, template_path)

    policy = pod_spec.get("restartPolicy", "Always")
    if policy == "Always":
        errors.required(f"{template_path}.restartPolicy", f"valid values: {_RESTART_POLICIES}")
    elif spec.get("podFailurePolicy") and policy == "OnFailure":
        why = 'only "Never" is supported when podFailurePolicy is specified'
        errors.invalid(f"{template_path}.restartPolicy", policy, why)


def _validate_indexes(errors: FieldErrors, spec: Document, path: str) -> None:
    mode = spec.get("completionMode")
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        errors.required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if mode not in (NON_INDEXED, INDEXED):
        errors.not_supported(f"{path}.completionMode", mode, (NON_INDEXED, INDEXED))

    if mode == INDEXED:
        if spec.get("completions") is None:
            errors.required(f"{path}.completions", f"when completion mode is {INDEXED}")
        parallelism = spec.get("parallelism") or 0
        if parallelism > MAX_PARALLELISM:
            why = f"must be less than or equal to {MAX_PARALLELISM}"
            why = f"{why} when completion mode is {INDEXED}"
            errors.invalid(f"{path}.parallelism", parallelism, why)
        return

    for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
        if spec.get(name) is not None:
            errors.invalid(f"{path}.{name}", spec[name], "requires indexed completion mode")


def _validate_policies(errors: FieldErrors, spec: Document, path: str) -> None:
    failure, success = spec.get("podFailurePolicy"), spec.get("successPolicy")
    replacement = spec.get("podReplacementPolicy")
    if failure is not None:
        rules_path = f"{path}.podFailurePolicy.rules"
        rules = failure.get("rules") or []
        errors.too_many(rules_path, len(rules), MAX_RULES)
        for index, rule in enumerate(rules):
            _validate_failure_rule(errors, spec, rule, f"{rules_path}[{index}]")

    if success is not None and spec.get("completionMode") != INDEXED:
        why = "requires indexed completion mode"
        errors.invalid(f"{path}.successPolicy", success, why)
    elif success is not None and not success.get("rules"):
        why = "at least one rules must be specified when the successPolicy is specified"
        errors.required(f"{path}.successPolicy.rules", why)

    choices = (FAILED,) if failure is not None else (FAILED, TERMINATING_OR_FAILED)
    if replacement not in choices:
        errors.not_supported(f"{path}.podReplacementPolicy", replacement, choices)


def _validate_failure_rule(errors: FieldErrors, spec: Document, rule: Document, path: str) -> None:
    action, codes = rule.get("action"), rule.get("onExitCodes")
    if not action:
        listed = " ".join(f'"{name}"' for name in _ACTIONS)
        errors.required(f"{path}.action", f"valid values: [{listed}]")
    elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        errors.invalid(f"{path}.action", action, "requires the backoffLimitPerIndex to be set")
    elif action not in _ACTIONS:
        errors.not_supported(f"{path}.action", action, _ACTIONS)

    if codes is not None:
        operator, values = codes.get("operator"), codes.get("values") or []
        if operator not in _OPERATORS:
            errors.not_supported(f"{path}.onExitCodes.operator", operator, _OPERATORS)
        if not values:
            why = "at least one value is required"
            errors.invalid(f"{path}.onExitCodes.values", values, why)
        for index, value in enumerate(values):
            if operator == "In" and value == 0:
                why = "must not be 0 for the In operator"
                errors.invalid(f"{path}.onExitCodes.values[{index}]", value, why)

    if codes is not None and rule.get("onPodConditions"):
        why = "specifying both OnExitCodes and OnPodConditions is not supported"
        errors.invalid(path, None, why)
    if codes is None and not rule.get("onPodConditions"):
        why = "specifying one of OnExitCodes and OnPodConditions is required"
        errors.invalid(path, None, why)


def _validate_generated_selector(errors: FieldErrors, job: Document) -> None:
    spec, metadata = job.get("spec") or {}, job["metadata"]
    if spec.get("manualSelector") or not spec.get("selector"):
        return

    expected = _generated_labels(metadata["name"], metadata["uid"])
    labels = _template_labels(spec)
    for name, value in expected.items():
        if labels.get(name) != value:
            why = f"must be '{value}'"
            errors.invalid("spec.template.metadata.labels", labels, why)

    if not selectors.matches(spec["selector"], {"metadata": {"labels": expected}}):
        errors.invalid("spec.selector", spec["selector"], "`selector` not auto-generated")


def _validate_selector(errors: FieldErrors, spec: Document, path: str) -> None:
    selector, labels = spec.get("selector"), _template_labels(spec)
    if selector is None:
        errors.required(f"{path}.selector")
    elif not selectors.matches(selector, {"metadata": {"labels": labels}}):
        why = "`selector` does not match template `labels`"
        errors.invalid(f"{path}.template.metadata.labels", labels, why)


def _template_labels(spec: Document) -> dict[str, str]:
    metadata = (spec.get("template") or {}).get("metadata") or {}
    return metadata.get("labels") or {}


def _validate_changes(errors: FieldErrors, spec: Document, old: Document) -> None:
    old_spec = old.get("spec") or {}
    completions, old_completions = spec.get("completions"), old_spec.get("completions")
    if completions != old_completions:
        # An indexed Job may change completions and parallelism together.
        is_elastic = spec.get("completionMode") == INDEXED and completions is not None
        if not is_elastic:
            errors.invalid("spec.completions", completions, "field is immutable")
        elif completions != spec.get("parallelism"):
            why = "can only be modified in tandem with spec.parallelism"
            errors.invalid("spec.completions", completions, why)

    for name in _IMMUTABLE:
        new_value, old_value = spec.get(name), old_spec.get(name)
        if name == "template" and _may_change_template(old):
            new_value, old_value = _closed_part(new_value), _closed_part(old_value)
        if new_value != old_value:
            errors.invalid(f"spec.{name}", spec.get(name), "field is immutable")


def _may_change_template(job: Document) -> bool:
    """Returns True if the Job is suspended and has no running pods."""
    status = job.get("status") or {}
    suspended = _conditions(status).get("Suspended") == "True"
    waits = suspended or not status.get("startTime")
    return bool((job.get("spec") or {}).get("suspend")) and waits and not status.get("active")


def _closed_part(template: Any) -> Document:
    spec = (template or {}).get("spec") or {}
    kept = {name: value for name, value in spec.items() if name not in _OPEN_WHILE_SUSPENDED}
    for field in core_kinds.CONTAINERS:
        containers = []
        for container in spec.get(field) or ():
            containers.append({k: v for k, v in container.items() if k != "resources"})
        kept[field] = containers
    return kept


# ---------------------------------------------------------------- status


def validate_status(errors: FieldErrors, job: Document, old: Document) -> None:
    """Checks the status of a Job against the rules for every controller of Jobs."""
    status, before = job.get("status") or {}, old.get("status") or {}
    conditions, conditions_before = _conditions(status), _conditions(before)

    def is_true(type_: str) -> bool:
        return conditions.get(type_) == "True"

    def cannot(why: str) -> None:
        errors.invalid("status.conditions", None, why)

    finished = is_true("Complete") or is_true("Failed")
    if is_true("Complete") and is_true("Failed"):
        cannot("cannot set Complete=True and Failed=true conditions")
    if is_true("Complete") and not is_true("SuccessCriteriaMet"):
        cannot("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
    if is_true("Failed") and not is_true("FailureTarget"):
        cannot("cannot set Failed=True condition without the FailureTarget=true condition")
    if is_true("Complete") and not status.get("completionTime"):
        why = "completionTime is required for Complete jobs"
        errors.required("status.completionTime", why)

    # A finished Job has no pods left to count.
    active = status.get("active") or 0
    if finished and active:
        errors.invalid("status.active", active, "active>0 is invalid for finished job")
    if finished and status.get("terminating"):
        why = "terminating>0 is invalid for finished job"
        errors.invalid("status.terminating", status["terminating"], why)
    uncounted = status.get("uncountedTerminatedPods") or {}
    if finished and any(uncounted.values()):
        why = "must be empty for finished job"
        errors.invalid("status.uncountedTerminatedPods", uncounted, why)
    if (status.get("ready") or 0) > active:
        why = "cannot set more ready pods than active"
        errors.invalid("status.ready", status["ready"], why)

    # The end of a Job is final.
    for type_ in ("Failed", "Complete", "FailureTarget"):
        if conditions_before.get(type_) == "True" and not is_true(type_):
            cannot(f"cannot disable the terminal {type_}=True condition")
    if (status.get("failed") or 0) < (before.get("failed") or 0):
        why = "cannot decrease the failed counter"
        errors.invalid("status.failed", status.get("failed") or 0, why)


def _conditions(status: Document) -> dict[str, str]:
    """Returns the status of each condition by its type: "True", "False" or "Unknown"."""
    listed = status.get("conditions") or ()
    return {condition.get("type", ""): condition.get("status", "") for condition in listed}
