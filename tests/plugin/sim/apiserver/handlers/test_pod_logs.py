"""Tests of the output of containers."""


async def test_logs_of_pods(raw, api):
    pods = "/api/v1/namespaces/default/pods"
    for name, containers in (("one", "a"), ("two", "ab")):
        spec = {"containers": [{"name": container, "image": "i"} for container in containers]}
        await raw("POST", pods, {"metadata": {"name": name}, "spec": spec})
    assert (await raw("GET", f"{pods}/one/log")).status == 405  # nobody runs pods
    api.serve_logs(lambda *asked: "".join(f"{word}\n" for word in asked))
    reply = await raw("GET", f"{pods}/one/log")
    assert (reply.body, reply.headers["content-type"]) == (b"default\none\na\n", "text/plain")
    assert (await raw("GET", f"{pods}/two/log?container=b&tailLines=2")).body == b"two\nb\n"
    assert (
        await raw("GET", f"{pods}/two/log?container=b&tailLines=9")
    ).body == b"default\ntwo\nb\n"
    assert "choose one of: [a b]" in (await raw("GET", f"{pods}/two/log")).json["message"]
    assert (await raw("GET", f"{pods}/two/log?container=c")).status == 400
    assert (await raw("GET", f"{pods}/none/log")).status == 404


async def test_logs_of_a_container_that_ran_before_the_others(raw, api):
    """Checks that init containers have logs and are choices, but are never the default."""
    pods = "/api/v1/namespaces/default/pods"
    init = [{"name": "i", "image": "i"}]
    for name, containers in (("one", "a"), ("two", "ab")):
        spec = {"containers": [{"name": container, "image": "i"} for container in containers]}
        await raw(
            "POST", pods, {"metadata": {"name": name}, "spec": spec | {"initContainers": init}}
        )
    api.serve_logs(lambda *asked: "".join(f"{word}\n" for word in asked))
    assert (await raw("GET", f"{pods}/two/log?container=i")).body == b"default\ntwo\ni\n"
    assert (await raw("GET", f"{pods}/one/log")).body == b"default\none\na\n"
    assert "choose one of: [i a b]" in (await raw("GET", f"{pods}/two/log")).json["message"]
