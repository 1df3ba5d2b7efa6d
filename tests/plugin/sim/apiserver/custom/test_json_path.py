"""Tests of the JSONPath of columns, in the form that users of kubectl write."""

import pytest

from claimd.sim.apiserver.custom import json_path

POD = {
    "spec": {"a.b": 1, "list": [1, 2, 3], "map": {"x": {"y": "deep"}}},
    "status": {"conditions": [{"type": "Ready", "n": 1}, {"type": "Other", "n": 2}]},
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".spec.list", [[1, 2, 3]]),
        (".spec.list[0]", [1]),
        (".spec.list[-1]", [3]),
        (".spec.list[0:2]", [1, 2]),
        (".spec.list[0,2]", [1, 3]),
        (".spec.list[*]", [1, 2, 3]),
        (".spec.list[7]", []),
        (".spec['a.b']", [1]),
        (r".spec.a\.b", [1]),
        (".spec.map.*.y", ["deep"]),
        ("..y", ["deep"]),
        ('.status.conditions[?(@.type=="Ready")].n', [1]),
        (".status.conditions[?(@.type=='None')].n", []),
        (".status.conditions[?(@.n>1)].type", ["Other"]),
        (".status.conditions[?(@.n)].type", ["Ready", "Other"]),
        (".no.such.field", []),
    ],
)
def test_what_a_path_leads_to(path, expected):
    assert json_path.find(path, POD) == expected


@pytest.mark.parametrize("path", [".a[", ".a[x]", ".a[?(type)]", ".a[1:2:0]", ".a[1:2:3:4]"])
def test_what_is_no_path(path):
    with pytest.raises(json_path.NoPathError):
        json_path.find(path, {"a": []})
