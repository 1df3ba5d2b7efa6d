"""Tests of refusals as Status objects."""

from claimd.sim.apiserver.types import status_errors
from claimd.sim.apiserver.types.resource import PODS, GroupResource
from claimd.sim.apiserver.types.status_errors import Cause, StatusError

CLAIMS = GroupResource("resourceclaims", "resource.k8s.io", "ResourceClaim")


def test_a_status():
    assert StatusError(500, "", "message").status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "message",
        "code": 500,
    }
    error = StatusError(410, "Expired", "message", {})
    error.continue_token = "token"
    assert error.status["metadata"] == {"continue": "token"}
    assert (error.status["reason"], error.status["details"]) == ("Expired", {})


def test_an_object_is_named():
    error = status_errors.not_found(CLAIMS, "c")
    assert str(error) == 'resourceclaims.resource.k8s.io "c" not found'
    details = {"name": "c", "group": "resource.k8s.io", "kind": "resourceclaims"}
    assert (error.code, error.details) == (404, details)
    assert status_errors.not_found(PODS, "").details == {"kind": "pods"}


def test_causes_are_listed_once():
    causes = [Cause("R", "Required value", "a"), Cause("R", "Invalid value: 1: no", "b")]
    error = status_errors.invalid(CLAIMS, "c", [*causes, causes[0]])
    assert str(error) == (
        'ResourceClaim.resource.k8s.io "c" is invalid: [a: Required value, b: Invalid value: 1: no]'
    )
    assert error.details["kind"] == "ResourceClaim"
    assert error.details["causes"] == [cause.to_document() for cause in (*causes, causes[0])]
    error = status_errors.invalid(CLAIMS, "c", [causes[0], causes[0]])
    assert str(error) == 'ResourceClaim.resource.k8s.io "c" is invalid: a: Required value'


def test_codes_and_reasons():
    refused = {
        status_errors.already_exists(CLAIMS, "c"): (409, "AlreadyExists"),
        status_errors.modified_conflict(CLAIMS, "c"): (409, "Conflict"),
        status_errors.forbidden(CLAIMS, "c", "why"): (403, "Forbidden"),
        status_errors.apply_conflict([], "why"): (409, "Conflict"),
        status_errors.bad_request("why"): (400, "BadRequest"),
        status_errors.resource_not_found(): (404, "NotFound"),
        status_errors.method_not_allowed(): (405, "MethodNotAllowed"),
        status_errors.expired_version("why"): (410, "Expired"),
        status_errors.resource_version_too_large(9, 3): (504, "Timeout"),
    }
    for error, (code, reason) in refused.items():
        assert (error.status["code"], error.status["reason"]) == (code, reason)
    error = status_errors.resource_version_too_large(9, 3)
    assert str(error) == "Timeout: Too large resource version: 9, current: 3"
    assert error.details["retryAfterSeconds"] == 1
