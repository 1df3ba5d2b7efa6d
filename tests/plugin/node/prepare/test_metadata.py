import dataclasses
import json
import os
from pathlib import Path

import msgspec
import pytest

from claimd.common import errors
from claimd.kubernetes.api import limits
from claimd.kubernetes.api.resource import DeviceAttribute, ResourceClaim
from claimd.node.prepare import metadata, plan
from claimd.node.publish import device as published
from claimd.node.publish import sharing
from claimd_devices.gpu import Inventory
from tests.support.worlds import DRIVER, NODE, claim_object, gpu, inventory, result

FIRST, SECOND = gpu(0).name, gpu(1).name
OF_TEMPLATE = {"resource.kubernetes.io/pod-claim-name": "gpu-of-pod"}
CONTAINER = "/var/run/kubernetes.io/dra-device-attributes"


def plan_claim(*results, known=None, **meta):
    claim = claim_object("c", *(results or (result(FIRST),)))
    claim["metadata"] |= meta
    return plan.plan(
        msgspec.convert(claim, ResourceClaim),
        driver=DRIVER,
        pool=NODE,
        inventory=known or inventory(),
        neighbours=(),
        now="2026-01-01T00:00:00Z",
    )


@pytest.fixture
def folder(tmp_path):
    return metadata.MetadataFolder(tmp_path / "metadata", DRIVER, metadata.Published())


def versions(folder, given, request="gpu"):
    """What the file of a request says, by version."""
    text = Path(folder.mounts(given)[request].source).read_text()
    return {document.pop("apiVersion"): document for document in map(json.loads, text.splitlines())}


def test_a_file_says_the_same_in_each_version_newest_first(folder):
    given = plan_claim(annotations=OF_TEMPLATE)
    assert folder.ensure(given, inventory())
    both = versions(folder, given)
    assert list(both) == [
        "metadata.resource.k8s.io/v1beta1",
        "metadata.resource.k8s.io/v1alpha1",
    ]
    first, second = both.values()
    assert first == second
    (device,) = first["requests"][0].pop("devices")
    assert first == {
        "kind": "DeviceMetadata",
        "metadata": {"name": "c", "namespace": "default", "uid": "uid-c", "generation": 1},
        "podClaimName": "gpu-of-pod",
        "requests": [{"name": "gpu"}],
    }
    attributes = device.pop("attributes")
    assert device == {"driver": DRIVER, "pool": NODE, "name": FIRST}
    assert attributes["productName"] == {"string": "AMD Instinct MI300X"}
    assert attributes["driverVersion"] == {"version": "6.8.5"}
    assert attributes["resource.kubernetes.io/numaNode"] == {"int": 0}


def test_attributes_are_those_of_the_slices():
    known, rules = inventory(), sharing.parse(["*=memory"])
    alone = metadata.Published(sharing_rules=rules)
    for description, expected in (
        (alone, published.of_gpu(gpu(), [])),
        (metadata.Published(numa_list=True), published.of_gpu(gpu(), [], numa_list=True)),
    ):
        (document,) = metadata.build(plan_claim(), DRIVER, known, description).values()
        assert document.requests[0].devices[0].attributes == expected.attributes


def test_a_device_is_described_anew_when_it_has_changed():
    descriptions = metadata.Published()
    before = descriptions.attributes(gpu(), is_shared=False)
    assert descriptions.attributes(gpu(), is_shared=False) is before
    after = descriptions.attributes(gpu(console=True), is_shared=False)
    assert (before["console"].bool_, after["console"].bool_) == (False, True)


def test_a_share_says_what_it_has():
    how = {"shareID": "s1", "consumedCapacity": {"memory": "20Gi", "shares": "0"}}
    whole = metadata.Published(sharing_rules=sharing.parse(["*=memory"]))
    given = plan_claim(result(FIRST, "a", **how), result(SECOND, "b"))
    documents = metadata.build(given, DRIVER, inventory(), whole)
    share, alone = (documents[name].requests[0].devices[0].attributes for name in "ab")
    assert share["sharing"].string == "memory"
    assert share["shareID"].string == "s1"
    assert share["consumedMemory"].int_ == 20 << 30
    assert "consumedShares" not in share, "it has none of these"
    assert alone["sharing"].string == "exclusive"
    assert not {"shareID", "consumedMemory", "adminAccess"} & alone.keys()


def test_the_attribute_of_a_capacity_does_not_depend_on_how_it_is_written():
    how = {"shareID": "s1", "consumedCapacity": {f"{DRIVER}/memory": "20Gi"}}
    documents = metadata.build(
        plan_claim(result(FIRST, "a", **how)), DRIVER, inventory(), metadata.Published()
    )
    attributes = documents["a"].requests[0].devices[0].attributes
    assert attributes["consumedMemory"].int_ == 20 << 30


def test_an_amount_that_no_reader_takes_is_left_out():
    """No new claim has one, but a checkpoint of an earlier version may."""
    given = plan_claim(result(FIRST, shareID="s1", consumedCapacity={"odd": "1"}))
    (device,) = given.devices
    old = msgspec.structs.replace(device, consumed_capacity={"odd": "10E"})
    given = msgspec.structs.replace(given, devices=[old])
    (document,) = metadata.build(given, DRIVER, inventory(), metadata.Published()).values()
    assert "consumedOdd" not in document.requests[0].devices[0].attributes


def test_admin_access_is_told():
    given = plan_claim(result(FIRST, adminAccess=True))
    (document,) = metadata.build(given, DRIVER, inventory(), metadata.Published()).values()
    assert document.requests[0].devices[0].attributes["adminAccess"].bool_ is True


def test_each_request_has_a_file_of_its_devices_alone(folder):
    others = {"request": "nic", "driver": "nic.example", "pool": NODE, "device": "nic0"}
    results = [result(FIRST, "a"), result(SECOND, "a"), result(gpu(2).name, "b/large"), others]
    given = plan_claim(*results)
    folder.ensure(given, inventory())
    devices_by_request = {}
    for name in folder.mounts(given):
        (request,) = versions(folder, given, name)[metadata.VERSIONS[0]]["requests"]
        devices_by_request[name] = (
            request["name"],
            [device["name"] for device in request["devices"]],
        )
    assert devices_by_request == {"a": ("a", [FIRST, SECOND]), "b": ("b/large", [gpu(2).name])}


def test_where_a_container_finds_it(folder):
    """A subrequest is not part of the path."""
    by_name = folder.mounts(plan_claim(result(FIRST, "gpu/large")))
    assert by_name["gpu"].target == f"{CONTAINER}/resourceclaims/c/gpu/{DRIVER}-metadata.json"
    of_template = folder.mounts(plan_claim(annotations=OF_TEMPLATE))
    assert of_template["gpu"].target == (
        f"{CONTAINER}/resourceclaimtemplates/gpu-of-pod/gpu/{DRIVER}-metadata.json"
    )


@pytest.mark.parametrize("name", ["", "../../../etc", "a/b", "A", "-a", "a" * 64, "a\n"])
def test_an_annotation_that_is_no_name_leads_nowhere(folder, name):
    """Anybody may write it, and it would be a part of a path."""
    given = plan_claim(annotations={"resource.kubernetes.io/pod-claim-name": name})
    assert given.pod_claim_name is None
    assert folder.mounts(given)["gpu"].target.startswith(f"{CONTAINER}/resourceclaims/c/")


def test_claims_of_one_name_do_not_share_a_file(folder):
    old, new = plan_claim(uid="u1"), plan_claim(uid="u2")
    folder.ensure(old, inventory())
    folder.ensure(new, inventory())
    folder.remove(old)
    assert versions(folder, new)[metadata.VERSIONS[0]]["metadata"]["uid"] == "u2"


def test_what_is_right_is_not_written_again(folder, tmp_path):
    given = plan_claim()
    assert folder.ensure(given, inventory())
    file = Path(folder.mounts(given)["gpu"].source)
    before = file.stat()
    assert not folder.ensure(given, inventory())
    fresh = metadata.MetadataFolder(tmp_path / "metadata", DRIVER, metadata.Published())
    assert not fresh.ensure(given, inventory())
    assert not fresh.is_disturbed()
    assert file.stat().st_ino == before.st_ino
    assert before.st_mode & 0o777 == 0o644, "a container's user reads it, root or not"


def test_a_file_that_comes_to_say_something_else_has_the_next_generation(folder):
    given = plan_claim()
    generations = []
    for known in (inventory(1), inventory(0).from_unsorted([gpu(console=True)]), inventory(1)):
        folder.ensure(given, known)
        folder.ensure(given, known)
        meta = versions(folder, given)[metadata.VERSIONS[0]]
        shown = meta["requests"][0]["devices"][0]["attributes"]["console"]["bool"]
        generations.append((meta["metadata"]["generation"], shown))
    assert generations == [(1, False), (2, True), (3, False)]


DAMAGED = [
    b"",
    b"{",
    b"\xff\xfe",
    b'{"metadata": {"generation": -1}}\n',
    b'{"metadata": {"generation": 1e300}}\n',
    b'{"metadata": {"generation": 99999999999999999999999999}}\n',
    b'{"metadata": {"generation": null}}\n',
    b"[" * 100_000,
]


@pytest.mark.parametrize("damaged", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_is_made_anew(folder, damaged):
    given = plan_claim()
    folder.ensure(given, inventory())
    Path(folder.mounts(given)["gpu"].source).write_bytes(damaged)
    assert folder.is_disturbed()
    assert folder.ensure(given, inventory())
    assert versions(folder, given)[metadata.VERSIONS[0]]["metadata"]["generation"] == 1
    assert not folder.is_disturbed()


def test_keep_removes_what_no_claim_has(folder, tmp_path):
    kept, gone = plan_claim(result(FIRST, "a"), result(SECOND, "b")), plan_claim(uid="gone")
    for given in (kept, gone):
        folder.ensure(given, inventory())
    (tmp_path / "metadata" / ".uid-c_a.json.new").write_text("half")
    folder.keep([kept])
    assert sorted(os.listdir(tmp_path / "metadata")) == ["uid-c_a.json", "uid-c_b.json"]
    assert not folder.is_disturbed()
    folder.remove(kept)
    folder.remove(kept)
    assert os.listdir(tmp_path / "metadata") == []


def test_a_gpu_that_is_gone_or_another_one_has_no_metadata(folder, tmp_path):
    given = plan_claim()
    with pytest.raises(errors.NotReadyError):
        folder.ensure(given, inventory(0))
    with pytest.raises(errors.ClaimError, match="another GPU"):
        folder.ensure(given, inventory(0).from_unsorted([gpu(uuid="other")]))
    assert not (tmp_path / "metadata").exists()


def test_a_device_has_no_more_attributes_than_readers_take():
    """With all that a claim can add to what is published, of a GPU of which all is known."""
    facts = {"vbios": "1", "iommu_group": 1, "tiles": 2, "parent": "gpu", "driver_version": "1 a"}
    known = inventory(0).from_unsorted([gpu(**facts)])
    amounts = {"memory": "1Gi", "shares": "1", "computeUnits": "1", "carveOut": "1"}
    how = {"shareID": "s1", "adminAccess": True, "consumedCapacity": amounts}
    given = plan_claim(result(FIRST, **how), known=known)
    (document,) = metadata.build(given, DRIVER, known, metadata.Published()).values()
    attributes = document.requests[0].devices[0].attributes
    assert {"tiles", "driverVersionFull", "consumedCarveOut"} <= attributes.keys()
    assert len(attributes) <= limits.ATTRIBUTES_AND_CAPACITIES


def test_no_more_attributes_are_left_out_than_have_to_be():
    device = plan_claim().devices[0]
    spared, kept = published.SPARE[:2]
    names = [spared, kept, *(f"a{number}" for number in range(31))]
    given = dict.fromkeys(names, DeviceAttribute(int_=1))
    assert metadata._attributes(device, given).keys() == given.keys() - {spared}


def test_under_a_vendors_name_a_file_has_that_vendors_words():
    whole = gpu(0, vendor="nvidia", uuid="GPU-1", kind="divided")
    part = gpu(0, name=f"{whole.name}-mig-1-0", vendor="nvidia", kind="partition")
    part = dataclasses.replace(part, parent=whole.name)
    known = Inventory.from_unsorted([whole, part])
    given = plan_claim(result(part.name), known=known)
    documents = metadata.build(given, "gpu.nvidia.com", known, metadata.Published())
    (device,) = documents["gpu"].requests[0].devices
    assert device.driver == "gpu.nvidia.com"
    assert device.attributes["type"].string == "mig"
    assert device.attributes["parentUUID"].string == "GPU-1"
