"""Server-side apply and the owners of fields, against what the API server's own library made of the same steps.

Recorded from k8s.io/apimachinery 0.37.1 with the field rules of its client; times are left out there.
"""

import json
import re
from pathlib import Path

import pytest

from plugin.sim import fields, managed, patches, refused, schema

CASES = json.loads((Path(__file__).parents[2] / "cases" / "sim" / "apply.json").read_text())
CLAIM = schema.of_kind("resource.k8s.io", "v1", "ResourceClaim")
VERSION = "resource.k8s.io/v1"


def without_times(obj):
    obj = json.loads(json.dumps(obj))
    for entry in obj["metadata"].get("managedFields", []):
        entry.pop("time", None)
    return obj


def refusal(error):
    def plain(text):
        return re.sub(" at T$", "", re.sub(" at T:", ":", text).replace(" at T\n", "\n"))

    causes = [{**cause, "message": plain(cause["message"])} for cause in error.details["causes"]]
    return {
        "error": plain(str(error)),
        "causes": sorted(causes, key=lambda cause: (cause["message"], cause["field"])),
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['start']['kind']}-{len(case['steps'])}")
def test_recorded_steps(case):
    live = case["start"] | {"metadata": {}}
    group, _, version = case["start"]["apiVersion"].rpartition("/")
    rules = schema.of_kind(group, version, case["start"]["kind"])
    for step, wanted in zip(case["steps"], case["results"], strict=True):
        writer = managed.Writer(step["manager"], step["op"].capitalize(), case["start"]["apiVersion"])
        before = json.dumps(live)
        try:
            if step["op"] == "apply":
                new = managed.applied(rules, live, step["object"], writer, step["force"], "T")
            else:
                new = managed.updated(rules, live, patches.merge_patch(live, step["object"]), writer, "T")
        except refused.Refused as error:
            assert refusal(error) == wanted
            assert error.code == 409
        else:
            assert without_times(new) == wanted
            assert json.dumps(live) == before  # what is stored is never changed
            live = new


def apply(live, config, manager="a", force=False, time="T1", subresource=""):
    config = {"apiVersion": VERSION, "kind": "ResourceClaim", "metadata": {"name": "c"}} | config
    return managed.applied(CLAIM, live, config, managed.Writer(manager, "Apply", VERSION, subresource), force, time)


NEW = {"apiVersion": VERSION, "kind": "ResourceClaim", "metadata": {}}


def entries(obj):
    return {(entry["manager"], entry.get("subresource", "")): entry for entry in obj["metadata"]["managedFields"]}


def test_the_time_is_that_of_the_last_change():
    first = apply(NEW, {"metadata": {"name": "c", "labels": {"x": "1"}}})
    again = apply(first, {"metadata": {"name": "c", "labels": {"x": "1"}}}, time="T2")
    assert again == first
    other = apply(first, {"metadata": {"name": "c", "labels": {"y": "1"}}}, manager="b", time="T3")
    assert [entry["time"] for entry in other["metadata"]["managedFields"]] == ["T1", "T3"]
    agreeing = apply(first, {"metadata": {"name": "c", "labels": {"x": "1"}}}, manager="b", time="T4")
    assert "time" not in entries(agreeing)["b", ""]  # it changed nothing


def test_a_subresource_has_owners_of_its_own():
    devices = [{"driver": "d", "pool": "p", "device": "g", "data": {"x": 1}}]
    first = apply(NEW, {"metadata": {"name": "c", "labels": {"x": "1"}}})
    both = apply(first, {"status": {"devices": devices}}, subresource="status")
    assert set(entries(both)) == {("a", ""), ("a", "status")}
    assert both["metadata"]["labels"] == {"x": "1"}
    cleared = apply(both, {}, subresource="status")
    assert "devices" not in cleared.get("status", {})
    with pytest.raises(refused.Refused, match='conflict with "a" with subresource "status": .status.devices'):
        apply(both, {"status": {"devices": [devices[0] | {"data": {"x": 2}}]}}, manager="b")


def test_paths_are_shown_as_conflicts_show_them():
    path = ("f:status", "f:devices", 'k:{"device":"g","driver":"d","pool":"p"}', "f:data")
    assert fields.shown(path) == '.status.devices[device="g",driver="d",pool="p"].data'
    assert fields.shown(("f:metadata", "f:finalizers", 'v:"x/a"')) == '.metadata.finalizers[="x/a"]'


def test_paths_come_back_from_the_text():
    paths = {("f:a",), ("f:a", "f:b"), ("f:c", 'k:{"x":1}', "f:x"), ("f:d", 'v:"e"')}
    encoded = fields.encode(paths)
    assert encoded == {"f:a": {".": {}, "f:b": {}}, "f:c": {'k:{"x":1}': {"f:x": {}}}, "f:d": {'v:"e"': {}}}
    assert fields.decode(encoded) == paths
