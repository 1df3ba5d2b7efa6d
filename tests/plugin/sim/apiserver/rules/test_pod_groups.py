"""Tests of defaults and validation of PodGroups."""

import pytest

from claimd.sim.apiserver.catalog import Catalog
from claimd.sim.apiserver.rules import pod_groups
from claimd.sim.apiserver.rules.field_errors import FieldErrors
from claimd.sim.apiserver.rules.profile import Profile
from claimd.sim.apiserver.storage import bootstrap
from tests.support import registries
from tests.support.pod_group_situations import group, member
from tests.support.registries import ME, refusal

CATALOG = Catalog("1.37")
KIND = CATALOG.kind("podgroups", "scheduling.k8s.io")


def causes(new, old=None):
    errors = FieldErrors(Profile("1.37"))
    pod_groups.validate(errors, new, old)
    return [f"{cause.field}: {cause.message}" for cause in errors.causes]


def with_spec(**spec):
    document = group()
    return document | {"spec": document["spec"] | spec}


@pytest.mark.parametrize(
    ("new", "cause"),
    [
        (with_spec(schedulingPolicy={}), "must specify one of: `basic`, `gang`"),
        (
            with_spec(schedulingPolicy={"basic": {}, "gang": {"minCount": 1}}),
            "must specify exactly one of",
        ),
        (with_spec(schedulingPolicy={"gang": {}}), "gang.minCount: Required value"),
        (with_spec(schedulingPolicy={"gang": {"minCount": -1}}), "greater than or equal to 1"),
        (with_spec(resourceClaims=[{"name": "a"}]), "must specify one of: `resourceClaimName`"),
        (with_spec(resourceClaims=[{"resourceClaimName": "a"}]), "[0].name: Required value"),
        (group(a="x", b="x", c="x", d="x", e="x"), "Too many: 5: must have at most 4 items"),
    ],
)  # fmt: skip
def test_what_is_wrong(new, cause):
    (only,) = causes(new)
    assert cause in only


def test_what_is_right():
    assert causes(group(gang=4, gpu="=one-gpu", other="train")) == []


def test_what_may_change():
    assert causes(group(gang=3), group(gang=4)) == []
    assert causes(group(gang=3), group()) and causes(group(), group(gang=3))
    (only,) = causes(group(gpu="train"), group())
    assert "spec.resourceClaims" in only and "field is immutable" in only


def test_the_status_names_claims_of_the_spec():
    document = group(gpu="=one-gpu")
    for name, count in (("gpu", 0), ("other", 1)):
        errors = FieldErrors(Profile("1.37"))
        status = {"resourceClaimStatuses": [{"name": name, "resourceClaimName": "x"}]}
        pod_groups.validate_status(errors, document | {"status": status})
        assert len(errors.causes) == count


@pytest.fixture
def registry():
    registry_ = registries.new()
    bootstrap.make(registry_, CATALOG)
    return registry_


def test_a_new_group_has_a_priority_and_is_protected(registry):
    created = registry.create(KIND, "default", group(), ME)
    assert created["spec"]["priority"] == 0
    assert created["metadata"]["finalizers"] == [pod_groups.FINALIZER]


def test_a_priority_class_that_does_not_exist(registry):
    code, message = refusal(registry.create, KIND, "default", group(priority="high"), ME)
    assert code == 403 and "no PriorityClass with name high was found" in message
    wrong = group()
    wrong["spec"]["priority"] = 7
    _, message = refusal(registry.create, KIND, "default", wrong, ME)
    assert "must match the priority computed (0)" in message


@pytest.mark.parametrize(("release", "keeps"), [("1.34", False), ("1.37", True)])
def test_pods_of_groups(release, keeps):
    registry_, catalog = registries.new(release), Catalog(release)
    bootstrap.make(registry_, catalog)
    created = registry_.create(catalog.kind("pods"), "default", member("a"), ME)
    assert ("schedulingGroup" in created["spec"]) == keeps
