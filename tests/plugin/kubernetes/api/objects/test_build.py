"""Builders with the functions of seed 001, one test for each row of its index."""

import pytest

from claimd.kubernetes.api.objects import meta, plain, v1, v1alpha2, v1alpha3_31
from claimd.kubernetes.api.objects.v1alpha3_31 import (
    AllocationResult,
    DeviceAllocationResult,
    ResourceClaimStatus,
)

REFERENCES = [{"resource": "pods", "name": f"p{n}", "uid": f"u{n}"} for n in range(3)]
CONFIGS = [
    {"source": "FromClaim", "opaque": {"driver": f"d{n}", "parameters": {}}} for n in range(2)
]
RESULTS = [{"request": "r", "driver": "d", "pool": "p", "device": f"gpu-{n}"} for n in range(2)]
TERMS = [
    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"n{n}"]}]}
    for n in range(2)
]
ROWS = [  # the way, the list's two items, where they are found
    ("reserved_for", REFERENCES, ("reservedFor",)),
    ("allocation.devices.config", CONFIGS, ("allocation", "devices", "config")),
    ("allocation.devices.results", RESULTS, ("allocation", "devices", "results")),
    (
        "allocation.nodeSelector.nodeSelectorTerms",
        TERMS,
        ("allocation", "nodeSelector", "nodeSelectorTerms"),
    ),
]


def method(status, way, form):
    *places, name = "".join(f"_{c.lower()}" if c.isupper() else c for c in way).split(".")
    place = status.but
    for step in places:
        place = getattr(place, step)
    return getattr(place, form.format(name))


def value_at(status, path):
    value = status.to_dict()
    for step in path:
        value = value[step]
    return value


@pytest.mark.parametrize(
    ("way", "items", "path"), ROWS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_lists_are_replaced_or_appended_to(way, items, path):
    start = ResourceClaimStatus(deallocation_requested=True)
    first = method(start, way, "with_{}")(items[:1])
    assert value_at(first, path) == items[:1]
    assert value_at(method(first, way, "with_{}")(items[1:2]), path) == items[1:2]
    assert value_at(method(first, way, "with_{}_mixin")(items[1:2]), path) == items[:2]
    assert (
        value_at(method(first, way, "with_{}_mixin")(items[1]), path) == items[:2]
    )  # one item, as there
    assert value_at(method(start, way, "with_{}_mixin")(items), path) == items
    assert value_at(first, path) == items[:1]
    assert start == ResourceClaimStatus(deallocation_requested=True)
    assert first.deallocation_requested


def test_deallocation_requested():
    assert ResourceClaimStatus().but.with_deallocation_requested(True).to_dict() == {
        "deallocationRequested": True
    }


def test_allocation_controller():
    status = ResourceClaimStatus().but.allocation.with_controller("c")
    assert status.to_dict() == {"allocation": {"controller": "c"}}
    assert status.but.allocation.with_controller(None).to_dict() == {"allocation": {}}


def test_objects_are_replaced_or_merged_and_taken_as_objects():
    devices = DeviceAllocationResult(results=[])
    status = ResourceClaimStatus().but.with_allocation(AllocationResult(controller="c"))
    mixed = status.but.with_allocation_mixin(AllocationResult(devices=devices))
    assert mixed.to_dict() == {"allocation": {"controller": "c", "devices": {"results": []}}}
    assert status.but.with_allocation({"devices": {}}).to_dict() == {"allocation": {"devices": {}}}
    reference = v1.ResourceClaimConsumerReference(resource="pods", name="p", uid="u")
    built = ResourceClaimStatus().but.with_reserved_for(reference)
    reference.uid = "changed afterwards"
    assert built.to_dict()["reservedFor"][0]["uid"] == "u"


def test_maps_are_merged_into():
    claim = (
        v1.ResourceClaim()
        .but.metadata.with_labels({"a": "1"})
        .but.metadata.with_labels_mixin({"b": "2"})
    )
    assert claim.to_dict() == {"metadata": {"labels": {"a": "1", "b": "2"}}}
    assert claim.metadata == meta.ObjectMeta(labels={"a": "1", "b": "2"})


def test_a_wrong_value_is_named_by_its_path():
    with pytest.raises(
        plain.Invalid, match=r"allocation\.devices\.results\[0\]\.device: is required"
    ):
        ResourceClaimStatus().but.allocation.devices.with_results(
            [{"request": "r", "driver": "d", "pool": "p"}]
        )
    with pytest.raises(plain.Invalid, match="allocation: expected an object"):
        ResourceClaimStatus().but.with_allocation(v1.AllocationResult())


def test_what_is_missing_on_the_way_is_found_before_sending():
    half = v1alpha3_31.ResourceSliceSpec(driver="d", pool=None).but.pool.with_name("n")  # type: ignore[arg-type]
    assert [p.path for p in half.problems()] == ["pool.generation", "pool.resourceSliceCount"]


def test_there_are_names_for_what_is_there_and_no_others():
    assert dir(ResourceClaimStatus().but.allocation.devices) == [
        "with_config",
        "with_config_mixin",
        "with_results",
        "with_results_mixin",
    ]
    for name in ("with_devices", "devices", "with_deallocation_requested_mixin", "results"):
        with pytest.raises(AttributeError, match=f"no '{name}' here; there are "):
            getattr(ResourceClaimStatus().but, name)


class TestChanges:
    """`but` of a class, and `+`, as jsonnet has it."""

    change = ResourceClaimStatus.but

    @pytest.mark.parametrize("version", [v1alpha2, v1alpha3_31])
    def test_an_object_from_nothing(self, version):
        """A claim of these versions has a field that its constructor requires."""
        named = version.ResourceClaim.but.metadata.with_name("c")
        if version is v1alpha2:
            spec = {"resourceClassName": "gpu"}
            change = named + version.ResourceClaim.but.spec.with_resource_class_name("gpu")
        else:
            spec = {"controller": "d"}
            change = named + version.ResourceClaim.but.spec.with_controller("d")
        first, second = change.create(), change.create()
        assert first.to_dict() == {"metadata": {"name": "c"}, "spec": spec}
        first.metadata.name = "changed"
        assert second == version.ResourceClaim.from_dict({"metadata": {"name": "c"}, "spec": spec})

        with pytest.raises(plain.Invalid, match="ResourceClaim: spec: is required"):
            named.create().to_dict()

    def test_they_are_applied_in_their_order(self):
        release = self.change.with_deallocation_requested(True) + self.change.with_reserved_for(
            None
        )
        start = ResourceClaimStatus().but.with_reserved_for(REFERENCES)
        assert (start + release).to_dict() == {"deallocationRequested": True}
        assert len(start.reserved_for) == 3

        first = self.change.with_reserved_for(REFERENCES[:1])
        appended = first + self.change.with_reserved_for_mixin(REFERENCES[1:])
        assert (ResourceClaimStatus() + appended).to_dict() == {"reservedFor": REFERENCES}
        assert (start + (appended + first)).to_dict() == {"reservedFor": REFERENCES[:1]}
        assert (start + appended + first).to_dict() == {"reservedFor": REFERENCES[:1]}

    def test_parts_are_created(self):
        change = self.change.allocation.with_controller("c")
        change += self.change.allocation.devices.with_results_mixin(RESULTS[0])
        assert (ResourceClaimStatus() + change).to_dict() == {
            "allocation": {"controller": "c", "devices": {"results": RESULTS[:1]}}
        }

    def test_one_change_for_many_objects_that_share_nothing(self):
        change = self.change.with_reserved_for(REFERENCES[:1])
        first, second = ResourceClaimStatus() + change, ResourceClaimStatus() + change
        first.reserved_for[0].name = "other"
        assert second.reserved_for[0].name == (ResourceClaimStatus() + change).reserved_for[0].name

    def test_a_wrong_value_or_class_is_refused(self):
        with pytest.raises(plain.Invalid, match="deallocationRequested: expected true or false"):
            self.change.with_deallocation_requested("yes")
        other = v1.ResourceClaimStatus.but.with_devices(None)
        message = "expected a change of a ResourceClaimStatus"
        with pytest.raises(TypeError, match=message):
            ResourceClaimStatus() + other
        with pytest.raises(TypeError, match=message):
            self.change.with_reserved_for(None) + other
        with pytest.raises(TypeError, match="unsupported operand"):
            ResourceClaimStatus() + 1
        with pytest.raises(TypeError, match="unsupported operand"):
            other + 1


def test_a_function_says_what_it_does():
    builder = v1.ResourceClaim.but.spec
    text = builder.with_devices.__doc__
    assert text.startswith("Returns a copy with spec.devices set to the value")
    assert len(text.split("\n\n")) > 1, "the description of the field follows"
