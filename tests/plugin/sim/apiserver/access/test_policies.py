"""Tests of ValidatingAdmissionPolicies: their matches, denials and warnings."""

import contextlib

import pytest

SLICES = "/apis/resource.k8s.io/v1/resourceslices"


async def test_the_policy_of_the_manifests_is_asked(plugin, builders):
    """Checks that a node may write only slices of its own node and driver, in every version."""
    own = builders["slice"]("own", node="n1", driver="gpu.claimd.dev")
    assert (await plugin("POST", SLICES, own)).status == 201
    policy = "resourceslices.gpu.claimd.dev"
    denied = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: "
    for slice_, why in (
        (
            builders["slice"]("other", node="n2", driver="gpu.claimd.dev"),
            "claimd on node n1 may not write a slice of node n2",
        ),
        (
            builders["slice"]("other", node="n1", driver="d.example.com"),
            "claimd may not write a slice of driver d.example.com",
        ),
    ):
        reply = await plugin("POST", SLICES, slice_)
        assert (reply.status, reply.json["reason"]) == (422, "Invalid")
        assert (
            reply.json["message"]
            == f'resourceslices.resource.k8s.io "other" is forbidden: {denied}{why}'
        )
        assert reply.json["details"]["causes"] == [{"message": why}]
    patch = [{"op": "replace", "path": "/spec/driver", "value": "d.example.com"}]
    reply = await plugin(
        "PUT", f"{SLICES}/own", own | {"spec": own["spec"] | {"driver": "d.example.com"}}
    )
    assert reply.status == 422, patch
    assert (await plugin("DELETE", f"{SLICES}/own")).status == 200


async def test_the_policy_does_not_concern_others(plugin, raw, builders):
    assert (await raw("POST", SLICES, builders["slice"]("s", node="n2"))).status == 201
    reply = await plugin("DELETE", f"{SLICES}/s")
    assert (reply.status, "may not write a slice of node n2" in reply.json["message"]) == (
        422,
        True,
    )


POLICY = {
    "failurePolicy": "Fail",
    "matchConstraints": {
        "resourceRules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["configmaps"],
            }
        ]
    },
    "validations": [{"expression": "object.data.size() < 2", "message": "at most one"}],
}


@contextlib.asynccontextmanager
async def policy(raw, actions, **spec):
    root = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    await raw("POST", f"{root}ies", {"metadata": {"name": "p"}, "spec": POLICY | spec})
    await raw(
        "POST",
        f"{root}ybindings",
        {"metadata": {"name": "b"}, "spec": {"policyName": "p"} | actions},
    )
    yield
    await raw("DELETE", f"{root}ybindings/b")
    await raw("DELETE", f"{root}ies/p")


async def test_other_policies(raw):
    maps, both = "/api/v1/namespaces/default/configmaps", {"a": "1", "b": "2"}
    deny = {"validationActions": ["Deny"]}

    async def create(name, data):
        return await raw(
            "POST",
            maps,
            {"metadata": {"name": name}} | ({"data": data} if data is not None else {}),
        )

    async with policy(raw, deny):
        assert (await create("one", {"a": "1"})).status == 201
        denied = await create("two", both)
        assert "denied request: at most one" in denied.json["message"]
        assert "warning" not in denied.headers
        reply = await create("none", None)  # an expression that fails refuses
        assert "resulted in error: no such key: data" in reply.json["message"]
    async with policy(raw, deny, failurePolicy="Ignore"):
        assert (await create("none", None)).status == 201
    async with policy(raw, {"validationActions": ["Warn", "Audit"]}):
        reply = await create("warned", both)
        assert (reply.status, "at most one" in reply.headers["warning"]) == (201, True)
    async with policy(
        raw, deny | {"matchResources": {"objectSelector": {"matchLabels": {"a": "b"}}}}
    ):
        assert (await create("unlabelled", both)).status == 201
    async with policy(
        raw, deny, matchConditions=[{"name": "n", "expression": "object.metadata.name == 'x'"}]
    ):
        assert (await create("y", both)).status == 201
        assert (await create("x", both)).status == 422
    async with policy(raw, deny, validations=[{"expression": "nothing.is()"}]):
        assert "unknown name nothing" in (await create("z", both)).json["message"]


MAPS = "/api/v1/namespaces/default/configmaps"
DENY = {"validationActions": ["Deny"]}


async def find_denial(raw, *, name="m", data=None, labels=None, binding=None, **spec):
    """Returns the denial of a new config map by a policy with this spec, or None."""
    new = {"metadata": {"name": name, "labels": labels or {}}, "data": data or {"a": "1"}}
    async with policy(raw, binding or DENY, **spec):
        reply = await raw("POST", MAPS, new)
    if reply.status == 201:
        return None
    return reply.status, reply.json["message"].partition(" denied request: ")[2]


@pytest.mark.parametrize(
    ("rule", "concerned"),
    [
        ({}, True),
        ({"operations": ["*"]}, True),
        ({"operations": ["UPDATE"]}, False),
        ({"resources": ["*"]}, True),
        ({"resources": ["*/*"]}, True),
        ({"resources": ["configmaps/*"]}, True),
        ({"resources": ["configmaps/status"]}, False),
        ({"apiGroups": ["apps"]}, False),
        ({"apiVersions": ["*"]}, True),
        ({"apiVersions": ["v2"]}, False),
        ({"scope": "Namespaced"}, True),
        ({"scope": "Cluster"}, False),
        ({"resourceNames": ["m"]}, True),
        ({"resourceNames": ["n"]}, False),
    ],
)
async def test_which_writes_a_rule_concerns(raw, rule, concerned):
    whole = POLICY["matchConstraints"]["resourceRules"][0] | rule
    never = [{"expression": "false", "message": "never"}]
    said = await find_denial(raw, matchConstraints={"resourceRules": [whole]}, validations=never)
    assert said == ((422, "never") if concerned else None)
    without = {"resourceRules": POLICY["matchConstraints"]["resourceRules"]}
    without["excludeResourceRules"] = [whole]
    said = await find_denial(raw, matchConstraints=without, validations=never)
    assert said == (None if concerned else (422, "never"))


@pytest.mark.parametrize(
    ("selector", "concerned"),
    [
        ({"objectSelector": {"matchLabels": {"tier": "gold"}}}, True),
        ({"objectSelector": {"matchLabels": {"tier": "lead"}}}, False),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "x"}}}, False),
        ({"resourceRules": []}, True),
    ],
)
async def test_a_binding_narrows_what_a_policy_concerns(raw, selector, concerned):
    said = await find_denial(
        raw,
        labels={"tier": "gold"},
        binding=DENY | {"matchResources": selector},
        validations=[{"expression": "false", "message": "never"}],
    )
    assert said == ((422, "never") if concerned else None)


@pytest.mark.parametrize(
    ("validation", "said"),
    [
        ({"expression": "false"}, "failed expression: false"),
        ({"expression": " 1 > 2 "}, "failed expression: 1 > 2"),
        ({"expression": "false", "message": "m"}, "m"),
        ({"expression": "false", "message": "m", "messageExpression": "' e '"}, "e"),
        ({"expression": "false", "message": "m", "messageExpression": "' '"}, "m"),
        ({"expression": "false", "message": "m", "messageExpression": "'a\\nb'"}, "m"),
        ({"expression": "false", "message": "m", "messageExpression": "1"}, "m"),
        ({"expression": "false", "message": "m", "messageExpression": "object.none"}, "m"),
    ],
)
async def test_what_a_denial_says(raw, validation, said):
    assert await find_denial(raw, validations=[validation]) == (422, said)


@pytest.mark.parametrize(
    ("reason", "code"),
    [("", 422), ("Invalid", 422), ("Forbidden", 403), ("Unauthorized", 401)],
)
async def test_a_denial_has_the_code_of_its_reason(raw, reason, code):
    validation = {"expression": "false", "message": "m", "reason": reason}
    assert await find_denial(raw, validations=[validation]) == (code, "m")


async def test_a_condition_that_goes_wrong(raw):
    broken = [{"name": "c", "expression": "object.none.other == 1"}]
    said = await find_denial(raw, name="a", matchConditions=broken)
    assert said is not None
    assert "no such key: none" in said[1]
    ignored = await find_denial(raw, name="b", matchConditions=broken, failurePolicy="Ignore")
    assert ignored is None


async def test_variables_may_use_those_before_them(raw):
    variables = [
        {"name": "a", "expression": "object.data.size()"},
        {"name": "b", "expression": "variables.a + 1"},
        {"name": "unused", "expression": "object.none"},
    ]
    validation = {"expression": "variables.b > 2", "messageExpression": "string(variables.b)"}
    said = await find_denial(raw, variables=variables, validations=[validation])
    assert said == (422, "2")
    more = {"a": "1", "b": "2"}
    assert await find_denial(raw, data=more, variables=variables, validations=[validation]) is None


@pytest.mark.parametrize(
    "expression",
    [
        "request.operation == 'CREATE' && request.name == 'm' && request.namespace == 'default'",
        "request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps'",
        "request.userInfo.username == 'kubernetes-admin' && !request.dryRun",
        "oldObject == null && params == null && request.subResource == ''",
        "namespaceObject.metadata.name == 'default'",
        "object.metadata.labels.all(k, k == 'none')",
        "authorizer.group('').resource('pods').check('list').allowed()",
        "authorizer.path('/metrics').check('get').allowed()",
        "!authorizer.path('/metrics').check('get').errored()",
        "authorizer.path('/metrics').check('get').error() == ''",
        "!authorizer.serviceAccount('default', 'a').group('').resource('pods').check('get')"
        ".allowed()",
        "authorizer.serviceAccount('default', 'a').group('').resource('pods')"
        ".namespace('default').name('p').subresource('log').check('get').reason() == ''",
    ],
)
async def test_what_an_expression_may_ask(raw, expression):
    assert await find_denial(raw, validations=[{"expression": expression}]) is None


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("authorizer.path('').check('get').allowed()", "path must not be empty"),
        ("authorizer.group('').resource('').check('get').allowed()", "resource must not be empty"),
    ],
)
async def test_what_it_may_not(raw, expression, error):
    said = await find_denial(raw, validations=[{"expression": expression}])
    assert said == (422, f"expression '{expression}' resulted in error: {error}")


async def test_an_update_knows_both_states(raw):
    rules = POLICY["matchConstraints"]
    once = [{"expression": "oldObject == null || oldObject.data == object.data", "message": "once"}]
    async with policy(raw, DENY, matchConstraints=rules, validations=once):
        new = {"metadata": {"name": "m"}, "data": {"a": "1"}}
        assert (await raw("POST", MAPS, new)).status == 201
        assert (await raw("PUT", f"{MAPS}/m", new)).status == 200
        assert (await raw("PUT", f"{MAPS}/m", new | {"data": {"a": "2"}})).status == 422


async def test_policies_do_not_hold_for_themselves(raw):
    """Checks that a policy which denies everything can be corrected."""
    everything = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"]}
    rules = {"resourceRules": [everything | {"resources": ["*"]}]}
    never = [{"expression": "false", "message": "never"}]
    async with policy(raw, DENY, matchConstraints=rules, validations=never):
        assert (await raw("POST", MAPS, {"metadata": {"name": "m"}})).status == 422
        policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
        mended = (await raw("GET", f"{policies}/p")).json
        mended["spec"]["validations"] = [{"expression": "true"}]
        assert (await raw("PUT", f"{policies}/p", mended)).status == 200
        assert (await raw("POST", MAPS, {"metadata": {"name": "m"}})).status == 201
