"""Tests of the scale of a deployment."""

MERGE = {"Content-Type": "application/merge-patch+json"}


async def test_scale(raw):
    place = "/apis/apps/v1/namespaces/default/deployments"
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"spec": {"containers": []}},
    }
    created = (await raw("POST", place, {"metadata": {"name": "d"}, "spec": spec})).json
    scale = (await raw("GET", f"{place}/d/scale")).json
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 2},
        {"replicas": 0, "selector": "a=b"},
    )
    assert (await raw("PUT", f"{place}/d/scale", scale | {"spec": {"replicas": 5}})).json[
        "spec"
    ] == {"replicas": 5}
    assert (await raw("PUT", f"{place}/d/scale", scale | {"spec": {"replicas": 6}})).status == 409
    assert (await raw("PATCH", f"{place}/d/scale", {"spec": {"replicas": -1}}, MERGE)).status == 422
    assert (await raw("PATCH", f"{place}/d/scale", {"spec": "a"}, MERGE)).status == 400
    assert (await raw("PATCH", f"{place}/d/scale", {"spec": {"replicas": 0}}, MERGE)).status == 200
    changed = (await raw("GET", f"{place}/d")).json
    assert (changed["spec"]["replicas"], changed["metadata"]["generation"]) == (
        0,
        created["metadata"]["generation"] + 2,
    )
    assert changed["spec"] == created["spec"] | {"replicas": 0}
    assert (await raw("POST", f"{place}/d/scale", {})).status == 405
