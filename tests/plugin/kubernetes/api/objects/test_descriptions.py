"""The descriptions of classes and fields: none is missing, and none describes nothing."""

import subprocess
import sys

import pytest

from claimd.kubernetes.api.objects import descriptions, models, v1, v1alpha2, v1alpha3_31
from claimd.kubernetes.api.objects.shapes import fields_of

CLASSES = {
    (cls.__module__.rpartition(".")[2], name): cls
    for version in models.VERSIONS
    for name, cls in models.classes(version).items()
}


@pytest.mark.parametrize(
    "cls", CLASSES.values(), ids=lambda cls: f"{cls.__module__[-8:]}-{cls.__name__}"
)
def test_every_class_and_field_is_described(cls):
    assert descriptions.describe_class(cls).endswith(".")
    for field in fields_of(cls).values():
        assert descriptions.describe_field(cls, field).endswith(".")


def test_a_class_without_a_sentence_is_found():
    class Unknown(v1.Model, kw_only=True):
        name: str

    with pytest.raises(descriptions.Undescribed, match=r"no about in \[Unknown\]"):
        descriptions.describe_class(Unknown)
    with pytest.raises(descriptions.Undescribed, match=r"no name in \[Unknown\]"):
        descriptions.describe_field(Unknown, fields_of(Unknown)["name"])


def classes_of_table(name):
    """The classes that may find a sentence in this table."""
    found = []
    for (version, cls_name), cls in CLASSES.items():
        names = {f"{version}.{cls_name}", *(each.__name__ for each in cls.__mro__)}
        names |= {descriptions.table().get(each, {}).get("like") for each in names}
        if name in names:
            found.append(cls)
    return found


def test_every_sentence_describes_a_field():
    unused = []
    for name, section in descriptions.table().items():
        # A table of a version contains those of its classes.
        inner = {f"{name}.{key}": part for key, part in section.items() if isinstance(part, dict)}
        for table, sentences in (inner or {name: section}).items():
            classes = classes_of_table(table)
            for key in sentences:
                is_field = any(key in fields_of(cls) for cls in classes)
                if not classes or not (is_field or key in ("about", "like")):
                    unused.append(f"{table}.{key}")
    assert unused == []


def test_sentences_are_short():
    for name, section in descriptions.table().items():
        for key, sentence in section.items():
            if isinstance(sentence, str) and key != "like":
                assert len(sentence) <= 160, f"{name}.{key}"


def test_limits_are_those_of_the_version():
    def describe(cls, name):
        return descriptions.describe_field(cls, fields_of(cls)[name])

    users = "keeps its devices while anybody is listed. At most {} items. No two items have the same uid."
    assert describe(v1.ResourceClaimStatus, "reservedFor").endswith(users.format(256))
    assert describe(v1alpha2.ResourceClaimStatus, "reservedFor").endswith(users.format(32))
    assert "At most 16384 bytes." in describe(v1alpha2.ResourceHandle, "data")
    assert "One of ExactCount, All." in describe(v1.ExactDeviceRequest, "allocationMode")
    assert "At most 32 entries." in describe(v1.CounterSet, "counters")
    assert "No item is there twice." in describe(v1.ResourceSliceSpec, "skipNodeOperations")
    request = descriptions.describe_class(v1.DeviceRequest)
    assert request.endswith("Exactly one of exactly and firstAvailable is set.")


def test_docstrings():
    document = v1.DeviceRequest.__doc__
    assert document.startswith("One request of a claim")
    assert "\nname (string, required):\n    The name of the request" in document
    assert "\nfirst_available (list of DeviceSubRequest):\n" in document
    assert v1.ResourceClaimList.__doc__.startswith("A list of ResourceClaim objects.")

    builder = v1alpha3_31.ResourceClaimStatus().but.allocation.devices
    assert builder.with_results.__doc__.startswith(
        "Returns a copy with allocation.devices.results set"
    )
    assert "with the value appended" in builder.with_results_mixin.__doc__
    assert "One entry for each allocated device" in builder.with_results_mixin.__doc__
    assert builder.with_results_mixin.__name__ == "with_results_mixin"


def test_sentences_are_read_when_somebody_asks():
    code = """
import sys
from claimd.kubernetes.api.objects import descriptions, models
models.V1ResourceClaim.from_dict({"metadata": {"name": "c"}}).to_dict()
print(descriptions.table.cache_info().misses, "tomllib" in sys.modules)
models.V1ResourceClaim.__doc__
print(descriptions.table.cache_info().misses)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "False", "1"]
