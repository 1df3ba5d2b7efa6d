"""Tests of field paths, and of merging and pruning by them."""

from claimd.sim.apiserver.types import fields, schema

CLAIM = schema.kind_schema("resource.k8s.io", "v1", "ResourceClaim")
POD = schema.kind_schema("", "v1", "Pod")
DEVICE = {"driver": "d", "pool": "p", "device": "g"}
KEY = 'k:{"device":"g","driver":"d","pool":"p"}'


def test_paths_are_shown_as_conflicts_show_them():
    path = ("f:status", "f:devices", 'k:{"device":"g","driver":"d","pool":"p"}', "f:data")
    assert fields.path_text(path) == '.status.devices[device="g",driver="d",pool="p"].data'
    assert (
        fields.path_text(("f:metadata", "f:finalizers", 'v:"x/a"'))
        == '.metadata.finalizers[="x/a"]'
    )


def test_paths_come_back_from_the_text():
    paths = {("f:a",), ("f:a", "f:b"), ("f:c", 'k:{"x":1}', "f:x"), ("f:d", 'v:"e"')}
    encoded = fields.to_fields_v1(paths)
    assert encoded == {
        "f:a": {".": {}, "f:b": {}},
        "f:c": {'k:{"x":1}': {"f:x": {}}},
        "f:d": {'v:"e"': {}},
    }
    assert fields.from_fields_v1(encoded) == paths


def test_what_can_be_owned():
    """Checks the paths of scalars, atoms, items, entries and empty structs."""
    claim = {
        "metadata": {"labels": {"a": "1"}, "finalizers": ["x"]},
        "status": {"devices": [DEVICE | {"data": {"any": 1}}], "allocation": {}},
    }
    devices = ("f:status", "f:devices", KEY)
    assert fields.field_set(CLAIM, claim) == {
        ("f:metadata", "f:labels", "f:a"),
        ("f:metadata", "f:finalizers", 'v:"x"'),
        devices,
        *((*devices, f"f:{name}") for name in ("driver", "pool", "device", "data")),
        ("f:status", "f:allocation"),
    }


def test_what_differs():
    old = {"metadata": {"labels": {"a": "1", "b": "1"}}, "spec": {"nodeName": "n"}}
    new = {"metadata": {"labels": {"a": "2", "b": "1", "c": "1"}}, "spec": {}}
    changed, removed = fields.compare(POD, old, new)
    labels = ("f:metadata", "f:labels")
    assert changed == {(*labels, "f:a"), (*labels, "f:c")}
    assert removed == {("f:spec", "f:nodeName")}
    changed, removed = fields.compare(POD, {}, {"spec": {"nodeName": "n"}})
    assert (changed, removed) == ({("f:spec",), ("f:spec", "f:nodeName")}, set())
    changed, removed = fields.compare(POD, {"spec": {"nodeName": "n"}}, {})
    assert (changed, removed) == (set(), {("f:spec",), ("f:spec", "f:nodeName")})
    assert fields.compare(POD, {"spec": {"a": True}}, {"spec": {"a": 1}})[0] == {("f:spec", "f:a")}


def test_items_are_told_apart_by_their_keys():
    ports = schema.Schema(keys=("containerPort", "protocol"))
    item = {"protocol": "TCP", "containerPort": 80, "name": "web"}
    assert fields.path_element(ports, item) == 'k:{"containerPort":80,"protocol":"TCP"}'
    assert fields.path_element(ports, {"containerPort": 80}) == 'k:{"containerPort":80}'
    assert fields.path_element(schema.Schema(is_set=True), "x") == 'v:"x"'
    assert fields.path_element(ports, "x") == 'v:"x"'


def containers(*names):
    return {"spec": {"containers": [{"name": name} for name in names]}}


def merge(live, config):
    merge = fields.merge(POD, containers(*live), containers(*config))
    return "".join(container["name"] for container in merge["spec"]["containers"])


def test_merged_lists_have_the_order_of_the_configuration():
    assert merge("abc", "ca") == "bca"
    assert merge("abc", "acx") == "abcx"
    assert merge("", "ab") == "ab"
    assert merge("ab", "") == "ab"
    assert merge("ab", "xa") == "xab"


def test_a_merge_lays_one_over_the_other_and_changes_neither():
    live = {"spec": {"containers": [{"name": "a", "image": "i"}], "nodeSelector": {"a": "1"}}}
    config = {"spec": {"containers": [{"name": "a", "tty": True}], "nodeSelector": {"b": "1"}}}
    copies = str(live), str(config)
    spec = fields.merge(POD, live, config)["spec"]
    assert spec["containers"] == [{"name": "a", "image": "i", "tty": True}]
    assert spec["nodeSelector"] == {"b": "1"}  # an atom
    assert (str(live), str(config)) == copies


def test_removing_items():
    devices = {"status": {"devices": [DEVICE, DEVICE | {"device": "h"}], "reservedFor": []}}
    path = ("f:status", "f:devices", KEY)
    left = fields.remove_items(CLAIM, devices, {path})
    assert left["status"]["devices"] == [DEVICE | {"device": "h"}]
    left = fields.remove_items(CLAIM, devices, {(*path, "f:pool")})
    assert left["status"]["devices"][0] == {"driver": "d", "device": "g"}
    labelled = {"metadata": {"name": "c", "labels": {"a": "1"}}}
    left = fields.remove_items(CLAIM, labelled, {("f:metadata", "f:labels", "f:a")})
    assert left == {"metadata": {"name": "c", "labels": None}}
    assert fields.without_nulls(left) == {"metadata": {"name": "c"}}
    assert fields.remove_items(CLAIM, devices, set()) == devices


def test_structs_count_with_their_fields():
    """Checks that only structs are added, not entries of a map or items of a list."""
    paths = {("f:metadata", "f:labels", "f:a"), ("f:status", "f:devices", KEY, "f:data")}
    assert fields.with_named_fields(CLAIM, paths) == paths | {
        ("f:metadata",),
        ("f:metadata", "f:labels"),
        ("f:status",),
        ("f:status", "f:devices"),
    }


def test_the_order_of_conflicts():
    paths = [("f:b", "f:a"), ("f:c",), ("f:a", "f:z"), ("f:a",)]
    assert sorted(paths, key=fields.conflict_order) == [
        ("f:a",),
        ("f:c",),
        ("f:a", "f:z"),
        ("f:b", "f:a"),
    ]
