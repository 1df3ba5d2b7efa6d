"""Tests of the driver's operations, against servers of every version and during upgrades."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from claimd.kubernetes.api.meta import Condition, ObjectMeta
from claimd.kubernetes.api.resource import (
    AllocatedDeviceStatus,
    Device,
    DeviceAttribute,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from claimd.kubernetes.kube import client, errors, nesting, resources, watch
from claimd.node.publish import slices
from tests.support import apiserver

VERSIONS = ["v1", "v1beta2", "v1beta1"]
GROUP = "/apis/resource.k8s.io"
Connect = Callable[..., client.Client]


@pytest.fixture
def kube(api: apiserver.ApiServer, connect: Connect) -> resources.Resources:
    return resources.Resources(connect(api.url), "d", "n")


def put_claim(api: apiserver.ApiServer, name: str = "c", *foreign: dict[str, Any]) -> str:
    """Creates a claim and returns its uid. `foreign` are entries of another driver in its status."""
    devices = [{"driver": "d", "pool": "n", "device": device} for device in ("g0", "g1")]
    for entry in foreign:
        devices.append({key: entry[key] for key in ("driver", "pool", "device")})
    results = [{"request": "r"} | device for device in devices]
    config = [
        {"source": "FromClaim", "opaque": {"driver": "d", "parameters": {"kind": "X", "a": [1]}}}
    ]
    obj = {
        "metadata": {"namespace": "ns", "name": name},
        "spec": {"devices": {"requests": [{"name": "r"}]}},
        "status": {
            "allocation": {"devices": {"results": results, "config": config}},
            "devices": list(foreign),
        },
    }
    uid: str = api.put("resourceclaims", obj)["metadata"]["uid"]
    return uid


def entries(api: apiserver.ApiServer, name: str = "c") -> list[dict[str, Any]]:
    return api.objects["resourceclaims", "ns", name]["status"].get("devices", [])


def device_status(device: str, **data: Any) -> AllocatedDeviceStatus:
    ready = Condition(
        type="Ready", status="True", reason="Prepared", last_transition_time="2026-11-21T09:31:37Z"
    )
    return AllocatedDeviceStatus(
        driver="d", pool="n", device=device, conditions=[ready], data=data or None
    )


def slice_of(name: str = "s", count: int = 2, **meta: str) -> ResourceSlice:
    devices = [
        Device(name=f"g{n}", attributes={"n": DeviceAttribute(int_=n)}) for n in range(count)
    ]
    pool = ResourcePool(name="n", generation=0, resource_slice_count=1)
    return ResourceSlice(
        metadata=ObjectMeta(name=name, **meta),
        spec=ResourceSliceSpec(driver="d", pool=pool, node_name="n", devices=devices),
    )


@contextlib.asynccontextmanager
async def watching(kube: resources.Resources) -> AsyncIterator[None]:
    task = asyncio.ensure_future(kube.slices.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def discoveries(api: apiserver.ApiServer) -> int:
    return sum(request.path == GROUP for request in api.requests)


@pytest.mark.parametrize(
    "served", [("v1beta1", "v1", "v1beta2"), ("v1beta1", "v1beta2"), ("v1alpha3", "v1beta1")]
)
async def test_the_best_version_is_used(
    api: apiserver.ApiServer, kube: resources.Resources, served: tuple[str, ...]
) -> None:
    api.served = served
    best = next(version for version in VERSIONS if version in served)
    uid = put_claim(api)
    assert kube.version == "v1"
    claims = await asyncio.gather(*(kube.claim("ns", "c") for _ in range(8)))
    assert {claim.metadata.uid for claim in claims} == {uid}
    assert kube.version == best
    assert discoveries(api) == 1
    assert api.count("GET", f"{GROUP}/{best}/namespaces/ns/resourceclaims/c") == 8


async def test_a_claim_as_the_driver_reads_it(
    api: apiserver.ApiServer, kube: resources.Resources
) -> None:
    put_claim(api)
    claim = await kube.claim("ns", "c", timeout=5)
    assert claim.status.allocation is not None
    devices = claim.status.allocation.devices
    assert [result.device for result in devices.results] == ["g0", "g1"]
    assert devices.config[0].opaque is not None
    assert json.loads(bytes(devices.config[0].opaque.parameters)) == {"kind": "X", "a": [1]}


async def test_a_claim_that_does_not_exist(
    api: apiserver.ApiServer, kube: resources.Resources
) -> None:
    """The answer names the claim, so the version is not in doubt and one request is enough."""
    for _ in range(3):
        with pytest.raises(errors.NotFound, match='resourceclaims.resource.k8s.io "c" not found'):
            await kube.claim("ns", "c")
    assert (discoveries(api), len(api.requests)) == (1, 4)


async def test_names_stay_within_their_part_of_the_path(
    api: apiserver.ApiServer, kube: resources.Resources
) -> None:
    with pytest.raises(errors.ApiError):
        await kube.claim("../..", "a/b?x=1")
    assert api.requests[-1].query == {}


@pytest.mark.parametrize(
    ("served", "message"),
    [
        ((), "does not serve resource.k8s.io at all; expected one of v1, v1beta2, v1beta1"),
        (("v1alpha3",), "in v1alpha3;"),
    ],
)
async def test_no_version_that_we_speak(
    api: apiserver.ApiServer, kube: resources.Resources, served: tuple[str, ...], message: str
) -> None:
    api.served = served
    with pytest.raises(errors.NotServed, match=message) as caught:
        await kube.claim("ns", "c")
    assert not isinstance(caught.value, errors.NotFound)  # which would mean that the claim is gone
    api.served = ("v1",)
    put_claim(api)
    await kube.claim("ns", "c")


async def test_the_question_for_versions_is_in_time_too(
    api: apiserver.ApiServer, kube: resources.Resources
) -> None:
    api.fail(kind="silent", path=GROUP)
    slow = asyncio.ensure_future(kube.claim("ns", "c", timeout=5))
    await apiserver.until(lambda: api.requests)
    with pytest.raises(errors.Unreachable):
        await kube.claim("ns", "c", timeout=0.1)
    slow.cancel()
    await asyncio.wait([slow])


@pytest.mark.parametrize(
    ("before", "after"), [("v1beta1", "v1"), ("v1", "v1beta2")], ids=["upgrade", "downgrade"]
)
async def test_a_claim_is_read_across_a_change_of_versions(
    api: apiserver.ApiServer, kube: resources.Resources, before: str, after: str
) -> None:
    put_claim(api)
    api.served = (before,)
    await kube.claim("ns", "c")
    api.served = (after,)
    await asyncio.gather(*(kube.claim("ns", "c") for _ in range(8)))
    assert kube.version == after
    assert discoveries(api) == 2


async def test_a_path_that_is_missing_though_it_is_served(
    api: apiserver.ApiServer, kube: resources.Resources
) -> None:
    put_claim(api)
    api.fail(404, path="resourceclaims", times=2, body=b"404 page not found")
    with pytest.raises(errors.NotServed, match="page not found"):
        await kube.claim("ns", "c")


@pytest.mark.parametrize("version", VERSIONS)
async def test_slices_come_and_go_in_the_shape_of_v1(
    api: apiserver.ApiServer, kube: resources.Resources, version: str
) -> None:
    api.served = (version,)
    stored = await kube.create_slice(slice_of())
    assert stored["spec"]["devices"] == [
        {"name": "g0", "attributes": {"n": {"int": 0}}},
        {"name": "g1", "attributes": {"n": {"int": 1}}},
    ]
    assert json.loads(api.requests[-1].body)["apiVersion"] == f"resource.k8s.io/{version}"
    assert api.objects["resourceslices", "", "s"]["spec"] == stored["spec"]
    meta = stored["metadata"]
    async with watching(kube):
        await apiserver.until(lambda: kube.slices.synced)
        assert kube.slices.objects == {"s": stored}
        known = {"uid": meta["uid"], "resource_version": meta["resourceVersion"]}
        updated = await kube.update_slice(slice_of(count=3, **known))
        assert len(updated["spec"]["devices"]) == 3
        await apiserver.until(lambda: kube.slices.objects == {"s": updated})
        with pytest.raises(errors.Conflict):
            await kube.update_slice(slice_of(count=1, **known))
        with pytest.raises(errors.Conflict):
            await kube.delete_slice("s", meta["uid"], meta["resourceVersion"])
        await kube.delete_slice("s", meta["uid"], updated["metadata"]["resourceVersion"])
        await apiserver.until(lambda: kube.slices.objects == {})
        await kube.delete_slice("s", meta["uid"], updated["metadata"]["resourceVersion"])


async def test_only_our_slices_are_watched(
    api: apiserver.ApiServer, kube: resources.Resources
) -> None:
    for name, driver, node in [("a", "d", "n"), ("b", "d", "other"), ("c", "other", "n")]:
        api.put(
            "resourceslices",
            {"metadata": {"name": name}, "spec": {"driver": driver, "nodeName": node}},
        )
    async with watching(kube):
        await apiserver.until(lambda: api.watches)
        assert set(kube.slices.objects) == {"a"}


async def test_a_dry_run_changes_nothing(
    api: apiserver.ApiServer, kube: resources.Resources
) -> None:
    api.dropped = {"attributes"}
    stored = await kube.create_slice(slice_of())
    assert stored["spec"]["devices"] == [{"name": "g0"}, {"name": "g1"}]
    result = await kube.update_slice(slice_of(count=1), dry_run=True)
    assert result["spec"]["devices"] == [{"name": "g0"}]
    assert api.objects["resourceslices", "", "s"]["spec"] == stored["spec"]


async def test_a_slice_that_is_there_already(
    api: apiserver.ApiServer, kube: resources.Resources
) -> None:
    await kube.create_slice(slice_of())
    with pytest.raises(errors.AlreadyExists) as caught:
        await kube.create_slice(slice_of())
    assert isinstance(caught.value, errors.Conflict)


async def test_a_slice_that_is_refused(api: apiserver.ApiServer, kube: resources.Resources) -> None:
    cause = {"reason": "FieldValueInvalid", "field": "spec.devices[1].name", "message": "bad"}
    refusal = apiserver.failure(422, "Invalid", "is invalid", {"name": "s", "causes": [cause]})
    api.fail(422, method="POST", body=json.dumps(refusal).encode())
    with pytest.raises(errors.Invalid) as caught:
        await kube.create_slice(slice_of())
    assert [(c.field, c.reason, c.message) for c in caught.value.causes] == [
        ("spec.devices[1].name", "FieldValueInvalid", "bad")
    ]


async def test_an_upgrade_while_the_slices_are_watched(
    api: apiserver.ApiServer, kube: resources.Resources
) -> None:
    """The server restarts with other versions of the API, and the copy stays the same."""
    api.served = ("v1beta1",)
    await kube.create_slice(slice_of())
    async with watching(kube):
        await apiserver.until(lambda: api.watches)
        before = kube.slices.objects["s"]
        notified = []
        kube.slices.subscribe(lambda: notified.append(1))
        await api.stop()
        api.served = ("v1beta2", "v1")
        await api.start()
        await apiserver.until(lambda: api.watches and api.count("GET", "/v1/resourceslices"))
        assert kube.version == "v1"
        assert kube.slices.objects == {"s": before}
        assert not notified
        await kube.update_slice(slice_of(count=4))
        await apiserver.until(lambda: len(kube.slices.objects["s"]["spec"]["devices"]) == 4)


async def test_an_upgrade_behind_a_clean_end(
    api: apiserver.ApiServer, kube: resources.Resources
) -> None:
    """The server still serves the old version, but a better one as well."""
    api.served = ("v1beta1",)
    async with watching(kube):
        await apiserver.until(lambda: api.watches)
        api.served = ("v1", "v1beta1")
        api.end_watches()
        await apiserver.until(lambda: api.count("GET", "/v1/resourceslices") == 2)
    assert kube.version == "v1"


@pytest.mark.parametrize("version", VERSIONS)
async def test_status_is_applied_and_taken_back(
    api: apiserver.ApiServer, kube: resources.Resources, version: str
) -> None:
    api.served = (version,)
    foreign = {"driver": "other", "pool": "n", "device": "x", "data": {"a": 1}, "conditions": None}
    uid = put_claim(api, "c", foreign)
    await kube.apply_devices(
        "ns", "c", uid, [device_status("g0", pci="0000:3b:00.0"), device_status("g1")], "d"
    )
    sent = json.loads(api.requests[-1].body)
    assert sent.keys() == {"apiVersion", "kind", "metadata", "status"}
    assert sent["metadata"] == {"name": "c", "namespace": "ns", "uid": uid}
    assert api.requests[-1].query == {"fieldManager": "d", "force": "true"}
    assert api.requests[-1].headers["content-type"] == "application/apply-patch+yaml"
    assert [entry["device"] for entry in entries(api)] == ["x", "g0", "g1"]
    assert entries(api)[1]["data"] == {"pci": "0000:3b:00.0"}
    await kube.apply_devices("ns", "c", uid, [device_status("g1")], "d")
    assert [entry["device"] for entry in entries(api)] == ["x", "g1"]
    await kube.apply_devices("ns", "c", uid, [], "d")
    assert entries(api) == [foreign]


async def test_what_was_applied_comes_back_and_is_logged_in_the_version_of_use(
    api: apiserver.ApiServer, kube: resources.Resources, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    api.served = ("v1beta2",)
    uid = put_claim(api)
    assert await kube.apply_devices("ns", "c", uid, [device_status("g0")], "d") is None
    applied = await kube.claim("ns", "c")
    assert applied.metadata.uid == uid
    assert [entry.device for entry in applied.status.devices] == ["g0"]
    assert caplog.text.count("using resource.k8s.io/v1beta2") == 1


async def test_entries_of_every_manager_are_removed_from_the_unchanged_claim(
    api: apiserver.ApiServer, kube: resources.Resources
) -> None:
    foreign = {"driver": "other", "pool": "n", "device": "x", "data": {"a": 1}, "conditions": None}
    uid = put_claim(api, "c", foreign)
    written = [device_status("g0"), device_status("g1")]
    await kube.apply_devices("ns", "c", uid, written, "an older name of ours")
    claim = await kube.claim("ns", "c")
    await kube.remove_devices(claim, "d")
    assert entries(api) == [foreign]
    request = api.requests[-1]
    assert request.headers["content-type"] == "application/json-patch+json"
    first, *removed = json.loads(request.body)
    version = claim.metadata.resource_version
    assert first == {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    assert [(operation["op"], operation["path"]) for operation in removed] == [
        ("remove", "/status/devices/2"),
        ("remove", "/status/devices/1"),
    ]
    with pytest.raises(errors.Invalid):
        await kube.remove_devices(claim, "other")
    assert entries(api) == [foreign], "it is another one by now"


async def test_a_claim_without_our_entries_costs_no_request(
    api: apiserver.ApiServer, kube: resources.Resources
) -> None:
    put_claim(api, "c", {"driver": "other", "pool": "n", "device": "x"})
    claim = await kube.claim("ns", "c")
    await kube.remove_devices(claim, "d")
    assert api.count("PATCH") == 0


async def test_status_of_a_claim_that_was_created_again(
    api: apiserver.ApiServer, kube: resources.Resources
) -> None:
    old = put_claim(api)
    api.delete("resourceclaims", "c", "ns")
    put_claim(api)
    with pytest.raises(errors.Invalid, match=r"metadata\.uid") as caught:
        await kube.apply_devices("ns", "c", old, [device_status("g0")], "d")
    assert caught.value.causes[0].field == "metadata.uid"
    assert entries(api) == []
    api.delete("resourceclaims", "c", "ns")
    with pytest.raises(errors.NotFound):
        await kube.apply_devices("ns", "c", old, [device_status("g0")], "d")


async def test_the_uid_of_the_node(api: apiserver.ApiServer, kube: resources.Resources) -> None:
    api.put(
        "nodes", {"metadata": {"name": "n", "uid": "u-7"}, "status": {"images": [{"names": ["x"]}]}}
    )
    assert await kube.node_uid("n") == "u-7"
    with pytest.raises(errors.NotFound):
        await kube.node_uid("m")


@pytest.mark.parametrize("body", [b"", b"[]", b'{"metadata": 1}', b"\xff"])
async def test_an_answer_of_another_shape(
    api: apiserver.ApiServer, kube: resources.Resources, body: bytes
) -> None:
    api.fail(200, path="resourceclaims", body=body)
    with pytest.raises(
        errors.Malformed, match="claim ns/c: the API server's answer is not as expected"
    ):
        await kube.claim("ns", "c")


async def test_the_capacity_of_the_node(
    api: apiserver.ApiServer, kube: resources.Resources
) -> None:
    capacity = {"cpu": "8", "nvidia.com/gpu": "2"}
    api.put("nodes", {"metadata": {"name": "n"}, "status": {"capacity": capacity}})
    assert await kube.node_capacity("n") == capacity
    api.put("nodes", {"metadata": {"name": "m"}})
    assert await kube.node_capacity("m") == {}


@pytest.mark.parametrize("version", VERSIONS)
async def test_slices_of_every_driver_on_the_node(
    api: apiserver.ApiServer, kube: resources.Resources, version: str
) -> None:
    api.served = (version,)
    await kube.create_slice(slice_of("ours"))
    other = slice_of("other")
    await kube.create_slice(
        msgspec.structs.replace(other, spec=msgspec.structs.replace(other.spec, driver="x"))
    )
    await kube.create_slice(
        msgspec.structs.replace(
            slice_of("far"), spec=msgspec.structs.replace(other.spec, node_name="m")
        )
    )
    listed = await kube.all_slices("n")
    assert sorted(obj["metadata"]["name"] for obj in listed) == ["other", "ours"]
    for obj in listed:
        assert not {"apiVersion", "kind"} & set(obj)
        assert obj["spec"]["devices"][1]["attributes"] == {"n": {"int": 1}}


@pytest.mark.parametrize(
    ("minor", "dropped", "why"),
    [
        ("35", set(), ""),
        ("36+", set(), ""),
        ("34", set(), "the API server is 1.34, partitions need 1.35"),
        ("x", set(), "the API server is 1.x, partitions need 1.35"),
        ("36", {"sharedCounters"}, "the API server drops sharedCounters: its feature gate"),
    ],
)
async def test_check_counters(
    api: apiserver.ApiServer,
    kube: resources.Resources,
    minor: str,
    dropped: set[str],
    why: str,
) -> None:
    api.minor, api.dropped = minor, dropped
    reason = await kube.check_counters(slices.counters_probe("d", "n"))
    assert reason.startswith(why)
    assert bool(reason) == bool(why)
    assert not [key for key in api.objects if key[0] == "resourceslices"]


@pytest.mark.parametrize(
    "dropped", [set(), {"requestPolicy"}, {"allowMultipleAllocations", "requestPolicy"}]
)
async def test_check_sharing(
    api: apiserver.ApiServer, kube: resources.Resources, dropped: set[str]
) -> None:
    api.dropped = dropped
    reason = await kube.check_sharing(slices.sharing_probe("d", "n"))
    assert reason.startswith("the API server drops allowMultipleAllocations") == bool(dropped)
    assert not [key for key in api.objects if key[0] == "resourceslices"]
    nothing = slice_of(count=0)
    assert "drops allowMultipleAllocations" in await kube.check_sharing(nothing)


@contextlib.asynccontextmanager
async def following(informer: watch.Informer) -> AsyncIterator[None]:
    task = asyncio.ensure_future(informer.run())
    try:
        await apiserver.until(lambda: informer.synced)
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("version", VERSIONS)
async def test_of_all_claims_those_of_this_node_are_followed(
    api: apiserver.ApiServer, kube: resources.Resources, version: str
) -> None:
    api.served = (version,)
    uid = put_claim(api)
    put_claim(api, "later")
    elsewhere = {"request": "r", "driver": "d", "pool": "other", "device": "g0"}
    claim = api.get("resourceclaims", "later", "ns")
    assert claim is not None
    claim["status"]["allocation"]["devices"]["results"] = [elsewhere]
    api.put("resourceclaims", claim)
    api.put("resourceclaims", {"metadata": {"namespace": "ns", "name": "waits"}, "spec": {}})

    informer = kube.allocated_claims()
    async with following(informer):
        (followed,) = informer.objects.values()
        assert followed["metadata"]["uid"] == uid
        results = followed["status"]["allocation"]["devices"]["results"]
        assert [result["device"] for result in results] == ["g0", "g1"]
        put_claim(api, "later")
        await apiserver.until(lambda: len(informer.objects) == 2)


@pytest.mark.parametrize("levels", [120, 950, 100_000])
async def test_a_followed_claim_with_deep_parameters_can_be_compared_and_encoded(
    api: apiserver.ApiServer, kube: resources.Resources, levels: int
) -> None:
    put_claim(api)
    claim = api.get("resourceclaims", "c", "ns")
    assert claim is not None
    claim["status"]["devices"] = [{"driver": "e", "pool": "p", "device": "x", "data": "DEEP"}]
    claim["status"]["allocation"]["devices"]["config"][0]["opaque"]["parameters"] = "DEEP"
    deep = b"[" * levels + b"]" * levels

    # The watch that follows the list begins after the last change of the claim.
    version = claim["metadata"]["resourceVersion"]
    listed = json.dumps({"metadata": {"resourceVersion": version}, "items": [claim]}).encode()
    body = listed.replace(b'"DEEP"', deep)
    api.fail(200, path="/resourceclaims", body=body)

    informer = kube.allocated_claims()
    async with following(informer):
        (followed,) = informer.objects.values()
        assert nesting.REPLACEMENT in msgspec.json.encode(followed).decode()
        assert not nesting.is_too_deep(followed)
        assert followed["status"]["devices"] == [{"driver": "e", "pool": "p", "device": "x"}]
