"""Tests of pods' priorities and of PriorityClasses."""

import pytest

from claimd.sim.apiserver.rules import priorities
from claimd.sim.apiserver.types.kind import Kind
from claimd.sim.apiserver.types.options import DeleteOptions
from claimd.sim.apiserver.types.resource import PRIORITY_CLASSES
from tests.support import registries
from tests.support.registries import ME, PODS, refusal

CLASSES = Kind(PRIORITY_CLASSES, "v1", namespaced=False, has_status=False, has_generation=True)
CONTAINER = {"name": "c", "image": "i"}


def class_(name, value, **more):
    return {"metadata": {"name": name}, "value": value} | more


LOW = class_("low", -5, preemptionPolicy="Never")
HIGH = class_("high", 1000, preemptionPolicy="PreemptLowerPriority")


@pytest.fixture
def registry():
    return registries.new()


def pod(**spec):
    return {"metadata": {"name": "p"}, "spec": {"containers": [CONTAINER]} | spec}


def resolve(classes=(), **spec):
    spec_ = priorities.resolve_priority(pod(**spec), classes)
    return tuple(spec_.get(n) for n in ("priorityClassName", "priority", "preemptionPolicy"))


def test_a_pod_has_what_its_class_has():
    assert resolve([LOW, HIGH], priorityClassName="high") == (
        "high",
        1000,
        "PreemptLowerPriority",
    )
    assert resolve([LOW, HIGH], priorityClassName="low") == ("low", -5, "Never")
    # A pod may repeat the values of its class.
    said = {"priority": -5, "preemptionPolicy": "Never"}
    assert resolve([LOW], priorityClassName="low", **said) == ("low", -5, "Never")


def test_a_pod_without_a_class_is_of_the_default_one():
    assert resolve([HIGH]) == (None, 0, "PreemptLowerPriority")
    assert resolve([HIGH], priority=0) == (None, 0, "PreemptLowerPriority")
    default = LOW | {"globalDefault": True}
    assert resolve([HIGH, default]) == ("low", -5, "Never")
    assert resolve([HIGH, default], priorityClassName="high")[1] == 1000
    # Only a race makes two default classes. The one with the lower value counts.
    assert resolve([HIGH | {"globalDefault": True}, default])[0] == "low"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"priorityClassName": "none"}, "no PriorityClass with name none was found"),
        (
            {"priority": 7},
            "the integer value of priority (7) must not be provided in pod spec; priority "
            "admission controller computed 0 from the given PriorityClass name",
        ),
        (
            {"priority": 7, "priorityClassName": "high"},
            "the integer value of priority (7) must not be provided in pod spec; priority "
            "admission controller computed 1000 from the given PriorityClass name",
        ),
        (
            {"priorityClassName": "high", "preemptionPolicy": "Never"},
            "the string value of PreemptionPolicy (Never) must not be provided in pod spec; "
            "priority admission controller computed PreemptLowerPriority from the given "
            "PriorityClass name",
        ),
    ],
)
def test_a_pod_cannot_say_something_else(spec, why):
    assert refusal(priorities.resolve_priority, pod(**spec), [HIGH]) == (
        403,
        f'pods "p" is forbidden: {why}',
    )


def test_a_name_that_is_still_to_be_generated_is_told_as_it_came():
    unnamed = pod(priorityClassName="none")
    unnamed["metadata"] = {"generateName": "web-"}
    assert refusal(priorities.resolve_priority, unnamed, [])[1].startswith(
        'pods "web-" is forbidden: '
    )


# ---------------------------------------------------------------- through the registry


def change_class(registry, name, **fields):
    return registry.change(CLASSES, "", name, lambda old: old | fields, ME)


def test_the_number_stays_with_the_pod(registry):
    registry.create(CLASSES, "", class_("high", 1000), ME)
    stored = registry.create(PODS, "ns", pod(priorityClassName="high"), ME)
    assert stored["spec"]["priority"] == 1000
    # Values of the class have no owner.
    owned = stored["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]
    assert "f:priorityClassName" in owned
    assert "f:priority" not in owned

    # An update of the pod need not contain them.
    resolved = ("priority", "preemptionPolicy")
    spec = {name: value for name, value in stored["spec"].items() if name not in resolved}
    registry.delete(CLASSES, "", "high", DeleteOptions())
    again = registry.update(PODS, "ns", "p", stored | {"spec": spec}, ME)
    assert (again["spec"]["priority"], again["spec"]["preemptionPolicy"]) == (
        1000,
        "PreemptLowerPriority",
    )
    assert refusal(registry.create, PODS, "ns", pod(priorityClassName="high"), ME) == (
        403,
        'pods "p" is forbidden: no PriorityClass with name high was found',
    )
    config = pod(priorityClassName="x") | {"metadata": {"name": "q"}}
    assert refusal(registry.apply, PODS, "ns", "q", config, ME, False)[0] == 403


@pytest.mark.parametrize(
    ("name", "value", "more", "why"),
    [
        (
            "huge",
            1_000_000_001,
            {},
            "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
        ),
        (
            "system-mine",
            5,
            {},
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved "
            "for system use only. error: system-mine is not a known system priority class",
        ),
        (
            "system-node-critical",
            5,
            {},
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved "
            "for system use only. error: value of system-node-critical PriorityClass must be "
            "2000001000",
        ),
        (
            "system-cluster-critical",
            2_000_000_000,
            {"globalDefault": True},
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved "
            "for system use only. error: globalDefault of system-cluster-critical PriorityClass "
            "must be false",
        ),
        (
            "polite",
            5,
            {"preemptionPolicy": "Sometimes"},
            'preemptionPolicy: Unsupported value: "Sometimes": supported values: '
            '"PreemptLowerPriority", "Never"',
        ),
    ],
)
def test_a_class_that_is_refused(registry, name, value, more, why):
    code, text = refusal(registry.create, CLASSES, "", class_(name, value, **more), ME)
    kind = f'PriorityClass.scheduling.k8s.io "{name}" is invalid'
    assert (code, text) == (422, f"{kind}: {why}")


def test_a_class_keeps_its_number_and_policy(registry):
    stored = registry.create(CLASSES, "", class_("high", 1000), ME)
    assert stored["preemptionPolicy"] == "PreemptLowerPriority"
    for change, why in (
        ({"value": 1001}, "value: Forbidden: may not be changed in an update."),
        (
            {"preemptionPolicy": "Never"},
            'preemptionPolicy: Invalid value: "Never": field is immutable',
        ),
    ):
        answer = refusal(change_class, registry, "high", **change)
        assert answer == (422, f'PriorityClass.scheduling.k8s.io "high" is invalid: {why}')
    assert change_class(registry, "high", description="d")["value"] == 1000


def test_there_is_one_default(registry):
    registry.create(CLASSES, "", class_("a", 1, globalDefault=True), ME)
    why = "PriorityClass a is already marked as default. Only one default can exist"
    second = class_("b", 2, globalDefault=True)
    assert refusal(registry.create, CLASSES, "", second, ME) == (
        403,
        f'priorityclasses.scheduling.k8s.io "b" is forbidden: {why}',
    )
    registry.create(CLASSES, "", class_("b", 2), ME)
    assert refusal(change_class, registry, "b", globalDefault=True)[0] == 403
    assert change_class(registry, "a", description="d")["globalDefault"]
    assert registry.create(PODS, "ns", pod(), ME)["spec"]["priorityClassName"] == "a"
