"""The claims of a pod, the devices of its containers, and the state that outlives the kubelet."""

import json

import pytest

from claimd.common.errors import Fatal
from claimd.sim.kubelet import claim_info
from claimd.sim.kubelet.calls import ClaimRef, PreparedDevice
from claimd.sim.kubelet.claim_info import ClaimInfo, ClaimInfoCache, ClaimsError, PodClaim

DRIVER = "gpu.example.com"


def pod(claims=(), created=None, extended=None, uid="pod-1"):
    status = {"resourceClaimStatuses": created or []}
    if extended:
        status["extendedResourceClaimStatus"] = extended
    metadata = {"namespace": "team", "name": "p", "uid": uid}
    return {"metadata": metadata, "spec": {"resourceClaims": list(claims)}, "status": status}


def device(name, *requests, pool="node-1"):
    return PreparedDevice(pool=pool, device=name, requests=requests, cdi=(f"a/b={name}",))


def info(name, *devices, pods=("pod-1",), namespace="team", driver=DRIVER):
    reference = ClaimRef(namespace=namespace, name=name, uid=f"uid-{name}")
    return ClaimInfo(claim=reference, pods=set(pods), devices={driver: list(devices)})


def cache(folder, *infos):
    new_cache = ClaimInfoCache(folder / "kubelet", None, None, None)
    new_cache.infos = {claim.claim.uid: claim for claim in infos}
    return new_cache


def uses(cache_, pod_, name="main", claims=()):
    container = {"name": name, "resources": {"claims": list(claims)}}
    return [(use.title, use.driver, use.prepared.device) for use in cache_.uses_of(pod_, container)]


def test_claims_by_name_and_from_templates_in_the_pods_order():
    listed = [
        {"name": "own", "resourceClaimName": "c"},
        {"name": "made", "resourceClaimTemplateName": "t"},
        {"name": "none", "resourceClaimTemplateName": "t"},
    ]
    created = [{"name": "none"}, {"name": "made", "resourceClaimName": "p-made-x"}]
    assert list(claim_info.claims_of(pod(listed, created))) == [
        PodClaim("own", "c", True),
        PodClaim("made", "p-made-x", True),
        PodClaim("none", None, True),
    ]


def test_a_claim_that_is_not_there_yet():
    listed = [{"name": "made", "resourceClaimTemplateName": "t"}]
    with pytest.raises(ClaimsError, match="the ResourceClaim for made has not been created yet"):
        list(claim_info.claims_of(pod(listed)))
    assert list(claim_info.claims_of({"metadata": {}, "spec": {}})) == []


def test_the_claim_of_extended_resources_comes_last():
    extended = {"resourceClaimName": "p-extended"}
    listed = [{"name": "own", "resourceClaimName": "c"}]
    assert list(claim_info.claims_of(pod(listed, extended=extended))) == [
        PodClaim("own", "c", True),
        PodClaim("", "p-extended", False),
    ]


def test_what_a_container_lists_it_is_given(tmp_path):
    cache_ = cache(tmp_path, info("c", device("a", "gpu"), device("b", "nic"), device("z")))
    mine = pod([{"name": "own", "resourceClaimName": "c"}])
    whole = [("claim:own", DRIVER, name) for name in "abz"]
    assert uses(cache_, mine, claims=[{"name": "own"}]) == whole

    # What a driver says for no request is for all of them.
    part = [{"name": "own", "request": "gpu"}]
    some = [("claim:own/gpu", DRIVER, "a"), ("claim:own/gpu", DRIVER, "z")]
    assert uses(cache_, mine, claims=part) == some
    assert uses(cache_, mine, claims=[*part, {"name": "own"}]) == [*some, *whole]
    assert uses(cache_, mine, claims=[{"name": "other"}]) == []
    assert uses(cache_, mine) == []


@pytest.mark.parametrize(
    "other",
    [
        info("c", device("a"), pods=("pod-2",)),
        info("c", device("a"), namespace="elsewhere"),
        info("d", device("a")),
    ],
)
def test_what_is_not_the_pods_it_is_not_given(tmp_path, other):
    mine = pod([{"name": "own", "resourceClaimName": "c"}])
    assert uses(cache(tmp_path, other), mine, claims=[{"name": "own"}]) == []


def test_extended_resources_go_to_the_container_of_the_mapping(tmp_path):
    mappings = [
        {"containerName": "main", "requestName": "r0"},
        {"containerName": "side", "requestName": "r1"},
    ]
    mine = pod(extended={"resourceClaimName": "x", "requestMappings": mappings})
    cache_ = cache(tmp_path, info("x", device("a", "r0"), device("b", "r1"), device("z")))
    assert uses(cache_, mine) == [("", DRIVER, "a")]
    assert uses(cache_, mine, name="side") == [("", DRIVER, "b")]
    assert uses(cache_, mine, name="third") == []
    del mine["status"]["extendedResourceClaimStatus"]["requestMappings"]
    assert uses(cache_, mine) == []


def test_whose_device_it_is(tmp_path):
    cache_ = cache(
        tmp_path,
        info("c", device("a"), device("b"), pods=("pod-1", "pod-2")),
        info("d", device("a", pool="node-2"), pods=("pod-3",)),
        info("e", device("a"), pods=("pod-4",), driver="other.example.com"),
    )
    assert cache_.users_of({(DRIVER, "node-1", "a")}) == {"pod-1", "pod-2"}
    assert cache_.users_of({(DRIVER, "node-2", "a"), (DRIVER, "node-1", "x")}) == {"pod-3"}
    assert cache_.users_of(set()) == set()


async def test_a_claim_without_devices_is_forgotten_with_its_last_pod(tmp_path):
    first, second = info("c", pods=("pod-1",)), info("d", pods=("pod-1", "pod-2"))
    first.devices, second.devices = {}, {}
    cache_ = cache(tmp_path, first, second)
    cache_.load()
    await cache_.unprepare("pod-3")
    assert set(cache_.infos) == {"uid-c", "uid-d"}
    await cache_.unprepare("pod-1")
    assert set(cache_.infos) == {"uid-d"}
    assert second.pods == {"pod-2"} and not second.unpreparing

    document = json.loads((tmp_path / "kubelet" / claim_info.CHECKPOINT).read_text())
    assert document == {
        "claims": [
            {"uid": "uid-d", "namespace": "team", "name": "d", "pods": ["pod-2"], "drivers": {}}
        ]
    }


async def test_a_kubelet_that_starts_knows_what_the_last_one_knew(tmp_path):
    first = cache(tmp_path, info("c", device("a", "gpu"), pods=("pod-2", "pod-1")))
    first.load()
    await first.unprepare("nobody")

    second = ClaimInfoCache(tmp_path / "kubelet", None, None, None)
    second.load()
    [again] = second.infos.values()
    assert again.claim == ClaimRef(namespace="team", name="c", uid="uid-c")
    assert again.pods == {"pod-1", "pod-2"}
    assert again.devices == {DRIVER: [device("a", "gpu")]}
    # Each driver is asked again.
    assert again.prepared == set()


@pytest.mark.parametrize("content", [b"{", b"\xff", b'{"claims": [{}]}'])
def test_a_damaged_checkpoint_ends_the_start(tmp_path, content):
    cache_ = cache(tmp_path)
    cache_.load()
    path = tmp_path / "kubelet" / claim_info.CHECKPOINT
    path.write_bytes(content)
    with pytest.raises(Fatal, match=f"checkpoint {path} is damaged: .*; remove it"):
        cache_.load()
