"""Tests of the admission checks, which refuse requests whatever the rights of their user are."""

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


async def test_a_pod_runs_as_somebody_who_is_there(raw):
    """Checks that a pod needs its service account.

    A namespace has its default account from the start.
    """
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert (await raw("POST", "/api/v1/namespaces", {"metadata": {"name": "new"}})).status == 201
    assert (await raw("POST", "/api/v1/namespaces/new/pods", pod)).status == 201
    other = pod | {"metadata": {"name": "q"}, "spec": pod["spec"] | {"serviceAccountName": "sa"}}
    reply = await raw("POST", "/api/v1/namespaces/new/pods", other)
    assert (reply.status, reply.json["message"]) == (
        403,
        'pods "q" is forbidden: error looking up service account new/sa: serviceaccount "sa" not found',
    )


async def test_namespaces_that_have_to_be_there(raw):
    for name in ("default", "kube-system", "kube-public"):
        reply = await raw("DELETE", f"/api/v1/namespaces/{name}")
        message = f'namespaces "{name}" is forbidden: this namespace may not be deleted'
        assert (reply.status, reply.json["message"]) == (403, message)
    assert (await raw("DELETE", "/api/v1/namespaces/kube-node-lease")).status == 200


async def test_nothing_new_where_there_is_no_namespace(raw, builders):
    reply = await raw("POST", CLAIMS.replace("default", "none"), builders["claim"]())
    assert (reply.status, reply.json["message"]) == (404, 'namespaces "none" not found')


async def test_nothing_new_in_a_namespace_that_terminates(raw, builders):
    claims = CLAIMS.replace("default", "team")
    await raw("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
    assert (await raw("POST", claims, builders["claim"]())).status == 201
    await raw("DELETE", "/api/v1/namespaces/team")
    reply = await raw("POST", claims, builders["claim"]("d"))
    assert reply.status == 403
    assert reply.json["message"] == (
        'resourceclaims.resource.k8s.io "d" is forbidden: unable to create new content in '
        "namespace team because it is being terminated"
    )
    assert reply.json["details"]["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": "namespace team is being terminated",
            "field": "metadata.namespace",
        }
    ]
    labels = {"metadata": {"labels": {"a": "b"}}}
    headers = {"Content-Type": "application/merge-patch+json"}
    assert (await raw("PATCH", f"{claims}/c", labels, headers)).status == 200


async def test_the_pods_that_a_node_has_by_itself(raw):
    """Checks that a mirror pod needs no service account."""
    pods = "/api/v1/namespaces/default/pods"
    spec = {"serviceAccount": "none", "containers": [{"name": "c", "image": "i"}]}
    pod = {"metadata": {"name": "p"}, "spec": spec}
    assert (await raw("POST", pods, pod)).status == 403
    mirrored = {"name": "p", "annotations": {"kubernetes.io/config.mirror": "x"}}
    assert (await raw("POST", pods, pod | {"metadata": mirrored})).status == 201
