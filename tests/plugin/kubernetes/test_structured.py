"""The allocator for users of Python: seed 002, with the public objects and those of others."""

import copy
import datetime
import importlib
from pathlib import Path

import pytest

from claimd.kubernetes import cel, structured
from claimd.kubernetes.api import objects
from claimd.kubernetes.api.objects import plain, v1, v1beta1

CLASS = {
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": "device.driver == 'd.org'"}}]},
}
EXACTLY = {"deviceClassName": "gpu"}


def slice_(name="s", *, generation=1, count=1, devices=("gpu-0", "gpu-1"), **spec):
    return {
        "metadata": {"name": name},
        "spec": {
            "driver": "d.org",
            "pool": {"name": "p", "generation": generation, "resourceSliceCount": count},
            "devices": [{"name": name} for name in devices],
            **(spec or {"nodeName": "node-1"}),
        },
    }


def claim(name="c", **exactly):
    request = {"name": "gpu", "exactly": EXACTLY | exactly}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"devices": {"requests": [request]}},
    }


def holding(name, *devices):
    results = [
        {"request": "gpu", "driver": "d.org", "pool": "p", "device": device} for device in devices
    ]
    return claim(name) | {"status": {"allocation": {"devices": {"results": results}}}}


def devices_of(results):
    return [
        structured.DeviceID(result.driver, result.pool, result.device)
        for allocation in results
        for result in allocation.devices.results
    ]


class TestAllocator:
    def test_public_objects_in_and_out(self):
        waiting = v1.ResourceClaim.from_dict(claim(count=2))
        allocator = structured.Allocator(
            [waiting],
            [],
            [v1.DeviceClass.from_dict(CLASS)],
            [v1.ResourceSlice.from_dict(slice_())],
        )
        assert allocator.claims_to_allocate() == [waiting]
        [allocation] = allocator.allocate("node-1")
        assert allocation.to_dict() == {
            "devices": {
                "results": [
                    {"request": "gpu", "driver": "d.org", "pool": "p", "device": "gpu-0"},
                    {"request": "gpu", "driver": "d.org", "pool": "p", "device": "gpu-1"},
                ]
            },
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {
                        "matchFields": [
                            {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
                        ]
                    }
                ]
            },
        }
        waiting.status = v1.ResourceClaimStatus(allocation=allocation)
        assert waiting.problems() == []
        assert allocator.allocate("node-2") is None

    def test_a_lister_or_the_claims(self):
        class Lister:
            def list_all_allocated(self):
                return [holding("h", "gpu-0")]

        for claims in (Lister(), [holding("h", "gpu-0"), claim("waits")]):
            allocator = structured.Allocator([claim()], claims, [CLASS], [slice_()])
            [device] = devices_of(allocator.allocate("node-1"))
            assert str(device) == "d.org/p/gpu-1"

    def test_a_node_with_labels(self):
        selector = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
        slices = [slice_(nodeSelector={"nodeSelectorTerms": [selector]})]
        allocator = structured.Allocator([claim()], [], [CLASS], slices)
        node = {"metadata": {"name": "node-1", "labels": {"zone": "a"}, "uid": None}}
        assert allocator.allocate(node) is not None
        node["metadata"]["labels"]["zone"] = "b"
        assert allocator.allocate(node) is None

    def test_a_taint_rule_keeps_devices_away(self):
        rule = {
            "metadata": {"name": "r"},
            "spec": {
                "deviceSelector": {"device": "gpu-0"},
                "taint": {"key": "sick", "effect": "NoSchedule"},
            },
        }
        allocator = structured.Allocator([claim()], [], [CLASS], [slice_()], taint_rules=[rule])
        assert [device.device for device in devices_of(allocator.allocate("node-1"))] == ["gpu-1"]

    def test_gates_of_the_scheduler(self):
        """Without a list of gates, those count whose fields the objects have."""
        lists = slice_()
        lists["spec"]["devices"][0]["attributes"] = {"roots": {"strings": ["a", "b"]}}
        waiting = claim()
        waiting["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [
            {"cel": {"expression": "device.attributes['d.org'].roots.includes('a')"}}
        ]
        found = structured.Allocator([waiting], [], [CLASS], [lists])
        assert [device.device for device in devices_of(found.allocate("node-1"))] == ["gpu-0"]

        admin = claim(adminAccess=True)
        no_gates = structured.Allocator([admin], [], [CLASS], [slice_()], feature_gates=())
        with pytest.raises(structured.AllocationError, match="the feature is disabled"):
            no_gates.allocate("node-1")
        assert structured.Allocator([admin], [], [CLASS], [slice_()]).allocate("node-1")

    def test_the_release_of_the_scheduler(self):
        """In 1.38 a capacity has two names. The gates do not change that."""
        shared = slice_()
        shared["spec"]["devices"] = [
            {
                "name": "gpu-0",
                "allowMultipleAllocations": True,
                "capacity": {"memory": {"value": "80Gi"}},
            }
        ]
        asks = claim(capacity={"requests": {"d.org/memory": "40Gi"}})
        gates = ["DRAConsumableCapacity", "DRAPartitionableDevices"]
        for release, fits in (("1.36", False), ("1.37", False), ("1.38", True), ("v1.38.2", True)):
            for feature_gates in (None, gates):
                found = structured.Allocator(
                    [asks],
                    [],
                    [CLASS],
                    [shared],
                    feature_gates=feature_gates,
                    release=release,
                )
                assert bool(found.allocate("node-1")) is fits, (release, feature_gates)

    def test_a_feature_that_the_release_lacks(self):
        tainted = slice_()
        for device in tainted["spec"]["devices"]:
            device["taints"] = [{"key": "sick", "effect": "NoSchedule"}]
        for release, fits in (("1.35", True), ("1.36", False)):
            found = structured.Allocator([claim()], [], [CLASS], [tainted], release=release)
            assert bool(found.allocate("node-1")) is fits, release

    @pytest.mark.parametrize("release", ["", "1", "2.0", "1.x", "38"])
    def test_a_release_that_there_is_not(self, release):
        with pytest.raises(ValueError, match="expected one such as 1.37"):
            structured.Allocator([claim()], [], [CLASS], [slice_()], release=release)
        with pytest.raises(ValueError, match="expected one such as 1.37"):
            structured.gather_pools([slice_()], "node-1", release=release)

    def test_reasons_and_remedies(self):
        allocator = structured.Allocator(
            [claim(count=2)], [holding("h", "gpu-0")], [CLASS], [slice_()]
        )
        verdict = allocator.explain("node-1")
        assert verdict.outcome == "no"
        assert verdict.summary == (
            "claim ns/c: 2 GPUs are needed, 1 is free: gpu-0 is held by claim h"
        )
        assert [str(remedy) for remedy in verdict.shortage.remedies] == [
            "free gpu-0 (claim h)",
            "ask for 1 in request gpu",
        ]
        [device, _] = verdict.claims[0].requests[0].devices
        assert [reason.text for reason in device.reasons] == ["held by claim ns/h"]

    def test_an_explanation_ends_in_time(self):
        allocator = structured.Allocator([claim()], [], [CLASS], [slice_()])
        assert allocator.explain("node-1", time_limit=-1).outcome == "unknown"
        assert allocator.explain("node-1").outcome == "yes"

    def test_a_broken_rule_is_named(self):
        with pytest.raises(plain.Invalid, match="deviceClassName: is required"):
            structured.Allocator([claim(deviceClassName=None)], [], [CLASS], [slice_()])

    def test_a_misspelt_expression_is_an_error(self):
        wrong = copy.deepcopy(CLASS)
        wrong["spec"]["selectors"][0]["cel"]["expression"] = "device.drivr == 'd.org'"
        allocator = structured.Allocator([claim()], [], [wrong], [slice_()])
        with pytest.raises(structured.AllocationError, match="device has no field drivr"):
            allocator.allocate("node-1")
        assert allocator.explain("node-1").outcome == "error"


class TestGatherPools:
    def test_the_newest_generation_with_the_objects_that_were_given(self):
        new = v1.ResourceSlice.from_dict(slice_("new", generation=2))
        [pool] = structured.gather_pools([slice_("old"), new], "node-1")
        assert str(pool.pool_id) == "d.org/p"
        assert pool.slices == (new,)
        assert pool.slices[0] is new
        assert not pool.is_incomplete and not pool.is_invalid
        assert structured.gather_pools([new], "node-2") == []

    def test_unusable_pools(self):
        [pool] = structured.gather_pools([slice_(count=2)], "node-1")
        assert pool.is_incomplete
        [pool] = structured.gather_pools([slice_(devices=("a", "a"))], "node-1")
        assert pool.is_invalid and pool.invalid_reason == "duplicate device name a"

    def test_gates(self):
        by_device = slice_(perDeviceNodeSelection=True)
        by_device["spec"]["devices"] = [{"name": "gpu-0", "allNodes": True}]
        assert len(structured.gather_pools([by_device], "node-1")) == 1
        assert structured.gather_pools([by_device], "node-1", feature_gates=()) == []

    @pytest.mark.parametrize("gates", [["DRADeviceTaints", "DRAAdminAcess"], "DRAAdminAcess"])
    def test_a_gate_that_there_is_not(self, gates):
        words = "no feature gate of the allocator is called DRAAdminAcess; there are DRAAdminAccess"
        with pytest.raises(ValueError, match=words):
            structured.gather_pools([slice_()], "node-1", feature_gates=gates)
        with pytest.raises(ValueError, match=words):
            structured.Allocator([claim()], [], [CLASS], [slice_()], feature_gates=gates)


@pytest.mark.parametrize(
    "package", [structured, objects, cel], ids=lambda package: package.__name__
)
def test_what_is_public_exists_and_is_on_the_page(package):
    page = (Path(__file__).parents[3] / "docs/python.md").read_text()
    assert f"`{package.__name__}`" in page
    for name in package.__all__:
        try:
            assert getattr(package, name)
        except AttributeError:
            importlib.import_module(f"{package.__name__}.{name}")


class V1ResourceClaim:
    """As a model of the official client: names of Python, None for what is not set, and times."""

    def to_dict(self):
        return {
            "api_version": None,
            "kind": None,
            "metadata": {
                "name": "c",
                "namespace": "ns",
                "creation_timestamp": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
                "labels": {"device_class_name": "kept"},
            },
            "spec": {
                "devices": {
                    "config": None,
                    "requests": [
                        {
                            "name": "gpu",
                            "exactly": {"device_class_name": "gpu", "count": 1, "selectors": None},
                            "first_available": None,
                        }
                    ],
                }
            },
            "status": None,
        }


class ResourceV1ResourceClaim(V1ResourceClaim):
    """As newer clients call it, because the core API has a class of this name, too."""


class V1beta1ResourceClaim:
    def to_dict(self):
        request = {"name": "gpu", "device_class_name": "gpu", "exactly": None}
        return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}


@pytest.mark.parametrize(
    "given",
    [
        V1ResourceClaim(),
        ResourceV1ResourceClaim(),
        V1ResourceClaim().to_dict(),
        V1beta1ResourceClaim(),
        v1beta1.ResourceClaim.from_dict(
            {"spec": {"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu"}]}}}
        ),
        {
            "apiVersion": "resource.k8s.io/v1beta1",
            "kind": "ResourceClaim",
            "spec": {"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu"}]}},
        },
    ],
)
def test_objects_of_others(given):
    allocator = structured.Allocator([given], [], [CLASS], [slice_()])
    [read] = allocator.claims_to_allocate()
    assert read.spec.devices.requests[0].exactly.device_class_name == "gpu"
    assert len(devices_of(allocator.allocate("node-1"))) == 1
