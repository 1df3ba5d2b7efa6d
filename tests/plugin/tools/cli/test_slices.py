"""The slices that would be published, as tables and as objects."""

import json
import os


def test_slices_are_objects_that_kubectl_takes(claimd, tree):
    _, out, _ = claimd("slices", "--root", tree, "--node-name", "n", "-o", "json")
    (item,) = json.loads(out)["items"]
    assert (item["apiVersion"], item["kind"]) == ("resource.k8s.io/v1", "ResourceSlice")
    assert item["spec"]["nodeName"] == "n"
    assert len(item["spec"]["devices"]) == 3
    _, out, _ = claimd("slices", "--root", tree, "--node-name", "n")
    assert out.splitlines()[1].split()[-2:] == ["n", "3"]
    _, out, _ = claimd("slices", "--root", tree, "--node-name", "n", "-o", "wide")
    assert any(line.split()[2:] == ["vendor", "amd"] for line in out.splitlines())


def test_slices_as_tables(claimd, tree):
    arguments = ("slices", "--root", tree, "--node-name", "n", "--driver-name", "d.example")
    code, out, err = claimd(*arguments)
    assert (code, err) == (0, "")
    head, row = out.splitlines()
    assert head.split() == ["SLICE", "DRIVER", "NODE", "POOL", "DEVICES"]
    assert row.split() == ["00000-d.example-n", "d.example", "n", "n", "3"]
    code, out, err = claimd(*arguments, "-o", "wide")
    assert (code, err) == (0, "")
    head, *rows = (line.split() for line in out.splitlines())
    assert head == ["SLICE", "DEVICE", "ATTRIBUTE", "VALUE"]
    assert {row[0] for row in rows} == {"00000-d.example-n"}
    assert ["gpu-0000-11-00-0", "memory", "80Gi"] in [row[1:] for row in rows]


def test_what_parts_take_is_shown(claimd, tmp_path):
    claimd("fake", "write", str(tmp_path), "amd:mi300x,mode=dpx")
    _, out, _ = claimd("slices", "--root", str(tmp_path), "--node-name", "n", "-o", "wide")
    taken = [line.split()[1:] for line in out.splitlines() if " takes " in line]
    assert len({row[0] for row in taken}) == 2, "its two parts; the divided GPU takes nothing"
    assert {(row[1], row[-1]) for row in taken} == {("takes", "1")}


def test_without_a_name_the_node_is_this_machine(claimd, tree):
    _, out, _ = claimd("slices", "--root", tree, "-o", "json")
    (item,) = json.loads(out)["items"]
    assert item["spec"]["nodeName"] == os.uname().nodename


def test_what_is_published_otherwise_is_told(claimd, tree):
    share = ("--share", "0000:11:00.0=memory:900Gi")
    code, out, err = claimd("slices", "--root", tree, "--node-name", "n", *share)
    assert (code, out.splitlines()[1].split()[-1]) == (0, "3")
    assert err.startswith("claimd: ")
    assert "gpu-0000-11-00-0" in err
    code, out, err = claimd("slices", "--root", tree, "--share", "nvidia=half")
    assert (code, out) == (2, "")
    assert "'half' is no way to share" in err
