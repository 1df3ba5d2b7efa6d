"""Tests of the canonical form. tests/cases/sim/exchanges has answers of real servers."""

import pytest

from claimd.sim.apiserver.rules.canonical import canonical_quantity, round_trip


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("1024Mi", "1Gi"),
        ("1Ki", "1Ki"),
        ("0.5Gi", "512Mi"),
        ("1Mi", "1Mi"),
        ("0.5Ki", "512"),
        ("1536Mi", "1536Mi"),
        ("1000m", "1"),
        ("1.5", "1500m"),
        ("0.1", "100m"),
        ("16000", "16k"),
        ("1500", "1500"),
        (5, "5"),
        (0, "0"),
        ("0Gi", "0"),
        ("-1024Mi", "-1Gi"),
        ("1e3", "1e3"),
        ("12e6", "12e6"),
        ("1E", "1E"),
        ("+5", "5"),
        ("1n", "1n"),
        ("1e21", "1e21"),
        ("45678901234567891e999", "45678901234567891e999"),
        ("2000e999", "2000e999"),
        ("0e5", "0"),
    ],
)
def test_quantities(said, written):
    assert canonical_quantity(said) == written
    assert canonical_quantity(written) == written


def test_what_is_empty_and_what_is_always_there():
    claim = {"apiVersion": "x", "kind": "y", "metadata": {"labels": {}, "name": "c"}, "spec": None}
    assert round_trip("v1", "ResourceClaim", claim, "1.37") == {
        "apiVersion": "x",
        "kind": "y",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": None}},
        "status": {},
    }


def test_a_pointer_keeps_an_empty_value():
    device = {"name": "d", "nodeName": "", "allNodes": False, "bindsToNode": None, "taints": []}
    obj = {"metadata": {"name": "s"}, "spec": {"nodeName": "", "devices": [device]}}
    spec = round_trip("v1", "ResourceSlice", obj, "1.37")["spec"]
    assert spec["nodeName"] == ""
    assert spec["devices"] == [{"name": "d", "nodeName": "", "allNodes": False}]
    wrapped = {
        "metadata": {},
        "spec": {"nodeName": "", "devices": [{"name": "d", "basic": {"allNodes": False}}]},
    }
    older = round_trip("v1beta1", "ResourceSlice", wrapped, "1.37")["spec"]
    assert "nodeName" not in older
    assert older["devices"] == [{"name": "d", "basic": {"allNodes": False}}]


def test_slices_without_devices_before_1_36():
    obj = {"metadata": {}, "spec": {"driver": "d"}}
    assert round_trip("v1", "ResourceSlice", obj, "1.34")["spec"]["devices"] is None
    assert "devices" not in round_trip("v1", "ResourceSlice", obj, "1.37")["spec"]


def test_what_drivers_keep_is_as_they_said_it():
    parameters = {"a": None, "b": "", "c": [], "d": {"e": 0}}
    config = [{"opaque": {"driver": "d", "parameters": parameters}}]
    obj = {"metadata": {}, "spec": {"devices": {"config": config}}}
    assert round_trip("v1", "ResourceClaim", obj, "1.37")["spec"]["devices"]["config"] == config


def test_a_kind_that_is_not_known():
    assert round_trip("v1", "Pod", {"spec": {"x": None}}, "1.37") == {"spec": {"x": None}}
