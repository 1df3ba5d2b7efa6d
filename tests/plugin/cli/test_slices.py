"""What would be published, as tables and as objects."""

import json


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
