"""Conversion between versions. The way back restores all that was not reported as lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimd.kubernetes.api.objects import convert, models, plain, v1, v1alpha3_31
from tests.support import samples
from tests.support.documents import documents, without

LOSSLESS = ("v1", "v1beta2", "v1beta1")


def make_document(version, kind, **fields):
    return {"apiVersion": f"resource.k8s.io/{version.partition('-')[0]}", "kind": kind, **fields}


def there_and_back(document, version, to):
    """Returns what was lost on the way there. The rest must be the same after the way back."""
    converted = convert.convert(document, to)
    lost = [note.path for note in converted.notes if note.lost]
    assert convert.reshape(document, to) == converted.document
    back = convert.convert(converted.document, version)
    assert not [note for note in back.notes if note.lost]
    assert back.document == without(document, lost)
    return lost


PAIRS = [(a, b) for a in convert.TARGETS for b in convert.TARGETS if a != b]


@pytest.mark.sampled
@pytest.mark.parametrize(("version", "to"), PAIRS, ids=lambda version: version)
def test_nothing_is_lost_unsaid(version, to):
    kinds = sorted(models.kinds(version).keys() & models.kinds(to).keys())

    @settings(max_examples=samples.share(40), deadline=None)
    @given(st.data(), st.sampled_from(kinds))
    def check(data, kind):
        document = make_document(version, kind) | data.draw(
            documents(models.kinds(version)[kind]), label=kind
        )
        document |= make_document(version, kind)
        lost = there_and_back(document, version, to)
        if version in LOSSLESS and to in LOSSLESS:
            assert not lost
        if version == "v1alpha3" and to in LOSSLESS and kind != "DeviceTaintRule":
            assert (
                not lost
            )  # the common part: all of v1alpha3 but the selectors that its taint rules once had

    check()


CLAIM = make_document(
    "v1",
    "ResourceClaim",
    metadata={"name": "c"},
    spec={
        "devices": {
            "requests": [
                {
                    "name": "a",
                    "exactly": {"deviceClassName": "gpu", "count": 2, "derivedAttributes": []},
                },
                {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "big"}]},
            ]
        }
    },
)


def test_requests_are_flat_in_v1beta1():
    result = convert.convert(CLAIM, "v1beta1").document
    assert result["apiVersion"] == "resource.k8s.io/v1beta1"
    assert result["spec"]["devices"]["requests"] == [
        {"name": "a", "deviceClassName": "gpu", "count": 2, "derivedAttributes": []},
        CLAIM["spec"]["devices"]["requests"][1],
    ]


def test_what_is_lost_is_named_as_the_file_has_it():
    notes = convert.convert(CLAIM, "v1alpha3-1.31").notes
    assert [str(note) for note in notes] == [
        "spec.devices.requests[0].exactly.derivedAttributes: lost: v1alpha3-1.31 has no such field",
        "spec.devices.requests[1].firstAvailable: lost: v1alpha3-1.31 has no such field",
        "spec.devices.requests[1].deviceClassName: v1alpha3-1.31 does not take this: is required",
    ]


def test_devices_have_basic_and_bare_capacities_in_the_older_versions():
    device = {
        "name": "gpu-0",
        "attributes": {"speeds": {"ints": [1]}, "model": {"string": "x"}},
        "capacity": {"memory": {"value": "80Gi", "requestPolicy": {"default": "1Gi"}}},
    }
    spec = {
        "driver": "d",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n",
    }
    document = make_document("v1", "ResourceSlice", metadata={}, spec=spec | {"devices": [device]})
    beta = convert.convert(document, "v1beta1")
    assert beta.document["spec"]["devices"] == [
        {
            "name": "gpu-0",
            "basic": {"attributes": device["attributes"], "capacity": device["capacity"]},
        }
    ]
    assert not beta.notes
    alpha = convert.convert(document, "v1alpha3")
    assert alpha.document["spec"]["devices"][0]["basic"]["capacity"] == {"memory": "80Gi"}
    assert [note.path for note in alpha.notes if note.lost] == [
        "spec.devices[0].capacity[memory].requestPolicy",
        "spec.devices[0].attributes[speeds].ints",
    ]
    older = beta.document | {"spec": beta.document["spec"] | {"allNodes": False}}
    assert convert.convert(older, "v1").document == document  # false was absent there


def test_what_1_31_left_behind_is_said():
    document = make_document(
        "v1alpha3-1.31",
        "ResourceClaim",
        spec={
            "controller": "c",
            "devices": {"requests": [{"name": "a", "deviceClassName": "g", "adminAccess": False}]},
        },
        status={
            "deallocationRequested": True,
            "allocation": {"controller": "c", "nodeSelector": {"nodeSelectorTerms": []}},
        },
    )
    result = convert.convert(document, "v1")
    assert {note.path for note in result.notes} == {
        "spec.controller",
        "status.deallocationRequested",
        "status.allocation.controller",
    }
    assert result.document["spec"]["devices"]["requests"] == [
        {"name": "a", "exactly": {"deviceClassName": "g", "adminAccess": False}}
    ]
    assert result.document["status"] == {"allocation": {"nodeSelector": {"nodeSelectorTerms": []}}}


def test_fields_that_nobody_knows_are_lost_with_a_note():
    document = CLAIM | {"spec": {"devices": {"mood": 1}}, "extra": {}}
    assert {note.path for note in convert.convert(document, "v1").notes} == {
        "spec.devices.mood",
        "extra",
    }


def test_a_limit_that_the_target_has_is_a_note():
    references = [{"resource": "pods", "name": f"p{n}", "uid": f"u{n}"} for n in range(40)]
    (note,) = convert.convert(
        CLAIM | {"spec": {}, "status": {"reservedFor": references}}, "v1alpha3-1.31"
    ).notes
    assert (
        str(note)
        == "status.reservedFor: v1alpha3-1.31 does not take this: has 40 items, at most 32 are allowed"
    )
    assert not note.lost


def test_lists_keep_their_items():
    items = [{"metadata": {"name": "a"}, **CLAIM["spec"]}, CLAIM]
    items[0] = {"metadata": {"name": "a"}, "spec": CLAIM["spec"]}
    document = make_document(
        "v1", "ResourceClaimList", metadata={"resourceVersion": "7"}, items=items
    )
    result = convert.convert(document, "v1beta1").document
    assert (result["kind"], result["apiVersion"]) == (
        "ResourceClaimList",
        "resource.k8s.io/v1beta1",
    )
    assert result["metadata"] == {"resourceVersion": "7"}
    assert [item["metadata"]["name"] for item in result["items"]] == ["a", "c"]
    assert result["items"][0]["spec"]["devices"]["requests"][0]["deviceClassName"] == "gpu"
    mixed = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [CLAIM, {"apiVersion": "v1", "kind": "Pod"}],
    }
    result = convert.convert(mixed, "v1beta1").document
    assert [item["apiVersion"] for item in result["items"]] == ["resource.k8s.io/v1beta1", "v1"]
    notes = convert.convert(
        {"apiVersion": "v1", "kind": "List", "items": [CLAIM]}, "v1alpha3-1.31"
    ).notes
    assert notes[0].path == "items[0].spec.devices.requests[0].exactly.derivedAttributes"


def test_a_list_of_something_else_is_refused():
    document = {"apiVersion": "v1", "kind": "List", "items": [CLAIM, None]}
    with pytest.raises(convert.NotConvertible, match=r"^items\[1\]: expected an object, got None"):
        convert.convert(document, "v1beta1")


def test_typed_objects_are_converted_too():
    claim = v1.ResourceClaim.from_dict(
        {"metadata": {"name": "c"}, "spec": {"devices": {"requests": []}}}
    )
    result, notes = convert.convert_object(claim, "v1", "v1alpha3-1.31")
    assert isinstance(result, v1alpha3_31.ResourceClaim)
    assert result.metadata and result.metadata.name == "c"
    assert not notes


@pytest.mark.parametrize(
    ("document", "to", "words"),
    [
        (
            CLAIM,
            "v1alpha2",
            "expected one of v1, v1beta2, v1beta1, v1alpha3, v1alpha3-1.31 to convert to, got 'v1alpha2'",
        ),
        (make_document("v1", "Nothing"), "v1beta1", "resource.k8s.io/v1 has no Nothing"),
        (
            make_document("v9", "ResourceClaim"),
            "v1",
            "resource.k8s.io/v9 is not a version that this knows",
        ),
        (
            make_document("v1", "DeviceTaintRule", spec={"taint": {"key": "k", "effect": "None"}}),
            "v1beta1",
            "v1beta1 has no DeviceTaintRule; it is in v1, v1beta2, v1alpha3",
        ),
        (
            make_document("v1alpha3", "PodSchedulingContext", spec={}),
            "v1",
            "v1 has no PodSchedulingContext; it is in v1alpha3-1.31",
        ),
        (
            ["no", "object"],
            "v1",
            "expected an object with apiVersion and kind, got ['no', 'object']",
        ),
        ({"kind": "ResourceClaim", "spec": {}}, "v1", "the document has no apiVersion"),
        ({"apiVersion": "resource.k8s.io/v1", "items": []}, "v1beta1", "the document has no kind"),
    ],
)
def test_what_cannot_be_is_refused(document, to, words):
    with pytest.raises(convert.NotConvertible) as caught:
        convert.convert(document, to)
    assert str(caught.value) == words


def test_a_document_that_is_not_of_its_version_is_refused_with_paths():
    with pytest.raises(
        plain.Invalid, match=r"spec\.devices\.requests\[0\]: expected an object, got 'a'"
    ):
        convert.convert(CLAIM | {"spec": {"devices": {"requests": ["a"]}}}, "v1beta1")


def test_what_v1_has_no_object_for_becomes_a_note():
    result = convert.convert(make_document("v1alpha2", "PodSchedulingContext", spec={}), "v1")
    assert result.document is None
    assert [note.path for note in result.notes] == ["kind"]


def test_a_capacity_without_an_amount_is_none():
    device = {"name": "g", "basic": {"capacity": {"memory": {}}}}
    document = {"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceSlice"}
    document["spec"] = {"devices": [device]}
    result = convert.convert(document, "v1alpha3").document
    assert result["spec"]["devices"][0]["basic"]["capacity"] == {"memory": "0"}


@pytest.mark.parametrize("version", ["v1alpha3-1.31", "v2", ""])
def test_a_version_that_there_is_not(version):
    document = {"apiVersion": f"resource.k8s.io/{version}", "kind": "ResourceSlice"}
    with pytest.raises(convert.NotConvertible, match="is not a version that this knows"):
        convert.convert(document, "v1")


def test_a_field_that_another_version_has_there_is_none_of_this_one():
    """v1beta1 has the capacity within `basic`. Next to `basic` it is an unknown field."""
    device = {"name": "g", "basic": {}, "capacity": {"m": {"value": "1Gi"}}}
    document = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d",
            "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [device],
        },
    }
    for to in ("v1", "v1beta2", "v1alpha3"):
        converted = convert.convert(document, to)
        (device,) = converted.document["spec"]["devices"]
        assert "capacity" not in device | device.get("basic", {})
        assert [(note.path, note.lost) for note in converted.notes] == [
            ("spec.devices[0].capacity", True)
        ]
