"""Tests of reviews."""

DRA = "resource.k8s.io"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"


async def bind(raw, user, *rules):
    root = "/apis/rbac.authorization.k8s.io/v1"
    await raw("POST", f"{root}/clusterroles", {"metadata": {"name": "r"}, "rules": [*rules]})
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": user}],
    }
    assert (await raw("POST", f"{root}/clusterrolebindings", binding)).status == 201


CLAIMS = {"apiGroups": [DRA], "resources": ["resourceclaims"], "verbs": ["get"]}


async def test_may_i(raw, api):
    jane = api.token_of("jane")
    await bind(raw, "jane", CLAIMS, {"nonResourceURLs": ["/metrics/*"], "verbs": ["get"]})
    path = f"{AUTHORIZATION}/selfsubjectaccessreviews"

    async def review_access(**spec):
        review = {"kind": "SelfSubjectAccessReview", "metadata": {"name": "x"}, "spec": spec}
        reply = await raw("POST", path, review, token=jane)
        assert reply.status == 201
        assert reply.json["apiVersion"] == "authorization.k8s.io/v1"
        assert (reply.json["spec"], reply.json["metadata"]["name"]) == (spec, "x")
        return reply.json["status"]

    claims = {"verb": "get", "group": DRA, "resource": "resourceclaims", "namespace": "default"}
    assert await review_access(resourceAttributes=claims) == {"allowed": True}
    assert await review_access(resourceAttributes=claims | {"verb": "list"}) == {"allowed": False}
    assert await review_access(resourceAttributes=claims | {"group": ""}) == {"allowed": False}
    status = await review_access(resourceAttributes=claims | {"subresource": "status"})
    assert status == {"allowed": False}
    everything = {"verb": "get", "group": DRA}
    assert await review_access(resourceAttributes=everything) == {"allowed": False}
    metrics = {"verb": "get", "path": "/metrics/cadvisor"}
    assert await review_access(nonResourceAttributes=metrics) == {"allowed": True}
    assert await review_access(nonResourceAttributes=metrics | {"path": "/x"}) == {"allowed": False}


async def test_may_somebody_else(raw, api):
    await bind(raw, "jane", CLAIMS)
    claims = {"verb": "get", "group": DRA, "resource": "resourceclaims"}
    for plural, kind in (
        ("subjectaccessreviews", "SubjectAccessReview"),
        ("namespaces/default/localsubjectaccessreviews", "LocalSubjectAccessReview"),
    ):
        for spec, review_access in (
            ({"user": "jane"}, True),
            ({"user": "joe"}, False),
            ({"user": "joe", "groups": ["system:masters"]}, True),
        ):
            review = {"kind": kind, "spec": spec | {"resourceAttributes": claims}}
            reply = await raw("POST", f"{AUTHORIZATION}/{plural}", review)
            assert (reply.status, reply.json["status"]) == (201, {"allowed": review_access})


async def test_a_review_asks_one_thing(raw):
    path = f"{AUTHORIZATION}/selfsubjectaccessreviews"
    both = {"resourceAttributes": {"verb": "a"}, "nonResourceAttributes": {"verb": "a"}}
    for spec in ({}, both):
        reply = await raw("POST", path, {"kind": "SelfSubjectAccessReview", "spec": spec})
        (cause,) = reply.json["details"]["causes"]
        assert (reply.status, cause["field"]) == (422, "spec.resourceAttributes")
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        assert why in cause["message"]


async def test_what_is_wrong_with_the_bindings_is_the_reason(raw, api):
    binding = {
        "metadata": {"name": "lost"},
        "roleRef": {"kind": "ClusterRole", "name": "gone"},
        "subjects": [{"kind": "User", "name": "jane"}],
    }
    await raw("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    review["kind"] = "SelfSubjectAccessReview"
    path = f"{AUTHORIZATION}/selfsubjectaccessreviews"
    reply = await raw("POST", path, review, token=api.token_of("jane"))
    reason = 'RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found'
    assert reply.json["status"] == {"allowed": False, "reason": reason}


async def test_what_may_i(raw, api):
    urls = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    await bind(raw, "jane", CLAIMS, urls)
    path, asked = f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}
    status = (await raw("POST", path, asked, token=api.token_of("jane"))).json["status"]
    assert CLAIMS in status["resourceRules"]
    assert urls in status["nonResourceRules"]
    assert urls not in status["resourceRules"]
    assert CLAIMS not in status["nonResourceRules"]
    assert status["incomplete"] is False
    status = (await raw("POST", path, asked)).json["status"]
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    assert status["resourceRules"] == [everything]


async def test_who_am_i_and_whose_token_is_this(raw, api):
    token = api.token_of("jane", ["team"])
    jane = {"username": "jane", "groups": ["team", "system:authenticated"]}
    reply = await raw("POST", f"{AUTHENTICATION}/selfsubjectreviews", {}, token=token)
    assert reply.json["status"] == {"userInfo": jane}
    path = f"{AUTHENTICATION}/tokenreviews"
    reply = await raw("POST", path, {"spec": {"token": token}})
    audiences = ["https://kubernetes.default.svc"]
    assert reply.json["status"] == {"authenticated": True, "user": jane, "audiences": audiences}
    reply = await raw("POST", path, {"spec": {"token": token, "audiences": ["a"]}})
    assert reply.json["status"]["audiences"] == ["a"]
    reply = await raw("POST", path, {"spec": {"token": "nonsense"}})
    assert reply.json["status"] == {"user": {}, "error": "invalid bearer token"}
