"""`claimd explain` from files: pods, claims, classes, each kind of reason, and JSON.

docs/explain.md has the same for situations from real clusters.
"""

import json

import pytest
import yaml

from claimd.tools import cli
from claimd.tools.explain import objects, pending
from tests.support import situations
from tests.support.cluster_objects import (
    A100,
    DRIVER,
    ROOT,
    claim,
    class_,
    container,
    gpu,
    gpus,
    name,
    node,
    pod,
    request,
    selector,
    slice_,
    taint,
)


@pytest.fixture
def explain(tmp_path, capsys):
    def run(*objects, words=("train",)):
        path = tmp_path / "dump.yaml"
        path.write_text(
            yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [class_(), *objects]})
        )
        code = cli.main(["explain", *words, "-f", str(path)])
        out, err = capsys.readouterr()
        return code, out + err

    return run


@pytest.fixture
def file(tmp_path):
    def write(*objects):
        path = tmp_path / "made.yaml"
        path.write_text(yaml.safe_dump_all(objects))
        return str(path)

    return write


def test_data_is_of_the_nodes_that_were_judged(explain):
    """JSON judges the same nodes as text does; with --all it judges each node."""
    objects = [slice_(gpus(2), node=f"n-{number}") for number in range(2)]
    for words, like in (((), ["", "n-0"]), (("--all",), ["", ""])):
        _, out = explain(*objects, claim(count=3), words=("train", "-o", "json", *words))
        assert [node_["like"] for node_ in json.loads(out)["nodes"]] == like


def test_a_slice_that_json_cannot_have_is_refused(explain):
    code, out = explain(slice_([{"name": "g", "attributes": {True: {"int": 1}}}]), claim())
    assert code == 1 and "gpu.claimd.dev-node-1 cannot be read: Only dicts" in out


DOCUMENTATION = situations.ROOT_FOLDER / "docs/explain.md"


@pytest.mark.slow
def test_the_documentation_is_what_it_says():
    told = situations.document()
    assert told == DOCUMENTATION.read_text(), (
        "run `python -m tests.support.situations > docs/explain.md`"
    )


def test_the_documentation_is_short():
    """A situation takes one screen at most, and there are at least twenty."""
    parts = DOCUMENTATION.read_text().split("\n## ")[1:]
    assert len(parts) >= 20
    assert max(len(part.splitlines()) for part in parts) <= 30


def test_yes(explain):
    code, out = explain(slice_([gpu(0)]), claim())
    assert code == 0
    assert out.splitlines() == [
        "claim default/train: 1 of 1 nodes could have it",
        "",
        f"node node-1: yes: would get {name(0)}",
    ]


def test_pairs_are_the_nearest_where_no_single_change_helps(explain):
    tainted = [
        gpu(0, A100, taints=[taint("hot")]),
        gpu(1, A100, taints=[taint("hot"), taint("wet")]),
    ]
    wanted = claim(selectors=[selector(f'device.attributes["{DRIVER}"].productName == "H100"')])
    other = claim("other", held=[name(1)])
    _, out = explain(slice_(tainted), wanted, other, words=("train", "-o", "json"))
    [of_node] = json.loads(out)["nodes"]
    assert of_node["claims"][0]["requests"][0]["nearest"] == [f"{DRIVER}/node-1/{name(0)}"]


def test_devices_of_another_class_may_lack_what_a_selector_reads(explain):
    """The allocator never evaluates the claim's selector on them."""
    other = slice_([{"name": "nic"}], called="nics", driver="nic.example.com")
    few = selector('device.capacity["nic.example.com"].memory.compareTo(quantity("1Gi")) > 0')
    own = selector(f'device.capacity["{DRIVER}"].memory.compareTo(quantity("100Gi")) >= 0')
    _, out = explain(slice_([gpu(0)]), other, claim(selectors=[own]))
    assert "request gpus needs 1, 0 of 2 devices suit" in out
    assert "selector 1 fails: no such key: memory" in out
    code, out = explain(slice_([gpu(0)]), other, claim(selectors=[few]))
    assert code == 3 and "no such key: memory" in out


def test_json_has_every_device(explain):
    devices = gpus(9, taints=[taint("hot")])
    _, out = explain(slice_(devices), claim(), words=("train", "-o", "json"))
    [of_node] = json.loads(out)["nodes"]
    [asked] = of_node["claims"][0]["requests"]
    assert len(asked["devices"]) == 9 and asked["suitable"] == 0 and len(asked["nearest"]) == 9
    assert {reason["rule"] for device in asked["devices"] for reason in device["reasons"]} == {
        "taint"
    }


def test_json_has_the_allocation(explain):
    _, out = explain(slice_(gpus(2)), claim(count=2), words=("train", "-o", "json"))
    assert json.loads(out)["nodes"][0]["allocation"] == [
        f"{DRIVER}/node-1/{name(index)}" for index in range(2)
    ]


def test_what_text_leaves_out_is_counted(explain):
    claims = [claim(f"notebook-{index}", held=[name(index)]) for index in range(6)]
    _, out = explain(slice_(gpus(6)), claim(), *claims)
    assert "    3 more: held by claims" in out


def test_features_that_are_in_use_are_on(explain):
    """Compatibility groups and lists are understood because the devices use them.

    With the features off, the pool would be incomplete and the lists would have no common value.
    """
    devices = gpus(2)
    for index, device in enumerate(devices):
        device["attributes"]["links"] = {"ints": [index, 7]}
    devices[0]["consumesCounters"] = [
        {"counterSet": "s", "counters": {"c": {"value": "1"}}, "compatibilityGroups": ["a"]}
    ]
    counters = slice_(
        [],
        called="counters",
        count=2,
        sharedCounters=[{"name": "s", "counters": {"c": {"value": "1"}}}],
    )
    wanted = claim(count=2, constraints=[{"matchAttribute": f"{DRIVER}/links"}])
    _, out = explain(slice_(devices, count=2), counters, wanted)
    assert f"would get {name(0)}, {name(1)}" in out


def test_one_node_only(explain):
    _, out = explain(
        slice_([gpu(0)]),
        slice_([gpu(0)], node="node-2"),
        claim(),
        words=("train", "--node", "node-2"),
    )
    assert "node-1" not in out and f"would get {name(0)}" in out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("none",), "neither a claim nor a pod 'none'"),
        (("train", "--node", "x"), "no node 'x' is known"),
        (
            ("train", "-n", "elsewhere"),
            "neither a claim nor a pod 'train' in namespace 'elsewhere'",
        ),
        (("pod/train",), "neither a claim nor a pod 'train'"),
    ],
)
def test_what_is_not_there(explain, words, complaint):
    code, out = explain(slice_([gpu(0)]), claim(), words=words)
    assert code == 1 and complaint in out


def test_a_claim_and_a_pod_of_one_name(explain):
    both = [
        slice_([gpu(0)]),
        claim(),
        pod("train", resourceClaims=[{"name": "c", "resourceClaimName": "train"}]),
    ]
    assert explain(*both)[1].startswith("claim default/train:")
    assert explain(*both, words=("pod/train",))[1].startswith("pod default/train:")


def test_an_allocated_claim_waits_for_nothing(explain):
    _, out = explain(slice_([gpu(0)]), claim(held=[name(0)]))
    assert out == "claim default/train: it is allocated already\n"


def test_node_affinity(explain):
    requirement = {"key": "zone", "operator": "In", "values": ["b"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    _, out = explain(
        node("node-1", zone="a"),
        node("node-2", zone="b"),
        slice_([gpu(0)]),
        slice_([gpu(0)], node="node-2"),
        claim(),
        pod(affinity=affinity, resourceClaims=[{"name": "c", "resourceClaimName": "train"}]),
        words=("job",),
    )
    assert out.startswith("pod default/job: 1 of 2 nodes could run it\n")
    assert "node node-2: yes" in out
    assert "node node-1: no: its labels do not match the pod's node affinity" in out


def test_dry(explain, file):
    """A manifest without a namespace is of that of -n. A template in the same manifest is found."""
    documents = claim("inner", count=2)
    template = {
        "apiVersion": documents["apiVersion"],
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "two"},
    }
    template["spec"] = {"spec": documents["spec"]}
    wanted = pod(resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "two"}])
    del wanted["metadata"]["namespace"]
    _, out = explain(slice_(gpus(2)), words=("--dry", file(template, wanted), "-n", "team"))
    assert out.startswith("pod team/job: 1 of 1 nodes could run it\n")
    _, out = explain(slice_(gpus(1)), words=("--dry", file(template), "-n", "team"))
    assert "claim team/two: request gpus needs 2, 1 of 1 devices suit" in out


@pytest.mark.parametrize(
    "expression", ["device.driver == 1", 'device.attributes["x"].several.exists(x, x == 1)']
)
def test_dry_with_a_selector_that_is_refused(explain, file, expression):
    wanted = claim(selectors=[selector(expression)])
    _, out = explain(slice_(gpus(1)), words=("--dry", file(wanted)))
    assert "note: the API server refuses selector 1 of request gpus: line 1, column " in out
    assert "refuses" not in explain(slice_(gpus(1)), wanted)[1]


def test_dry_in_the_place_of_what_is_there(explain, file):
    _, out = explain(slice_(gpus(1)), claim(count=2), words=("--dry", file(claim(count=1))))
    assert "1 of 1 nodes" in out


def test_dry_is_about_everything_that_would_wait(explain, file):
    path = file(claim("one"), slice_(gpus(1)), claim("two", count=2))
    _, out = explain(words=("--dry", path))
    first, second = out.split("\n\nclaim default/two: ")
    assert first.startswith("claim default/one: 1 of 1 nodes could have it")
    assert second.startswith("0 of 1 nodes could have it")
    _, out = explain(words=("--dry", path, "-o", "json"))
    assert [answer["subject"] for answer in json.loads(out)] == [
        "claim default/one", "claim default/two",
    ]  # fmt: skip


def test_dry_is_about_something(explain, file):
    code, out = explain(words=("--dry", file(slice_([]))))
    assert code == 1 and "a claim or a claim template; this has none" in out


def test_class(explain):
    held = claim("other", held=[name(1)])
    _, out = explain(slice_(gpus(3)), held, words=("--class", DRIVER))
    assert f"class {DRIVER}: 1 of 1 nodes have a free device of it" in out
    assert "node node-1: yes: 2 of 3 devices are of the class and free" in out
    _, out = explain(slice_(gpus(3)), words=("--class", "none"))
    assert "could not retrieve device class none" in out


def test_one_subject_is_asked_for(explain):
    with pytest.raises(SystemExit) as ended:
        cli.main(["explain", "-f", "x"])
    assert ended.value.code == 2


def test_an_older_claim(explain):
    old = claim()
    old["apiVersion"] = "resource.k8s.io/v1beta1"
    [asked] = old["spec"]["devices"]["requests"]
    old["spec"]["devices"]["requests"] = [{"name": "gpus", **asked["exactly"]}]
    _, out = explain(slice_([gpu(0)]), old)
    assert f"would get {name(0)}" in out


def test_an_unreadable_file(tmp_path, capsys):
    path = tmp_path / "x.yaml"
    path.write_text("a: [")
    assert cli.main(["explain", "train", "-f", str(path)]) == 1
    assert "is neither JSON nor YAML" in capsys.readouterr().err


def test_two_constraints_that_no_set_of_devices_meets(explain):
    """Each constraint could be met alone."""
    devices = [gpu(index, per_root=2) for index in range(4)]
    for index, device in enumerate(devices):
        device["attributes"]["model"] = {"string": f"m{index % 2}"}
    both = [{"matchAttribute": ROOT}, {"matchAttribute": f"{DRIVER}/model"}]
    _, out = explain(slice_(devices), claim("train", request(count=2), constraints=both))
    assert "request gpus needs 2 devices at once" in out


@pytest.mark.parametrize("resource", ["resourceclaims", "deviceclasses", "resourceslices"])
def test_without_permission_the_answer_is_open(resource):
    known = objects.Objects(unseen=[resource])
    for document in (
        node("node-1"),
        pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "train"}]),
    ):
        known.add(document)
    if resource != "resourceclaims":
        known.add(claim())
    if resource == "resourceslices":
        known.add(class_())
    answer = pending.report(known, known.pods[0])
    assert answer.verdict == "unknown"
    assert answer.line.endswith(f"not allowed to see {resource}")
    known.unseen.clear()
    assert pending.report(known, known.pods[0]).verdict == "pending"


def test_without_nodes_that_is_the_answer(explain):
    assert explain(claim())[1].splitlines() == ["claim default/train: no nodes are known"]
    _, out = explain(pod(), words=("--pending",))
    assert "1 pod: no nodes are known" in out


def test_dry_of_two_workloads_of_one_name(explain, file):
    template = {"spec": {"containers": [container()]}}
    documents = [
        {
            "kind": kind,
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {"replicas": 1, "template": template},
        }
        for kind, namespace in (("Deployment", "a"), ("StatefulSet", "b"))
    ]
    _, out = explain(node("node-1"), words=("--dry", file(*documents)))
    assert "deployment a/web: " in out
    assert "statefulset b/web: " in out


def test_a_node_without_slices_is_told_from_one_whose_slices_are_empty(explain):
    _, out = explain(node("node-1"), claim())
    assert out.splitlines()[0].endswith(
        "no driver has devices on node-1: no ResourceSlice is for this node"
    )
    _, out = explain(node("node-1"), slice_([]), claim())
    assert out.splitlines()[0].endswith(
        "no driver has devices on node-1: the ResourceSlices for this node are empty"
    )


@pytest.fixture
def known():
    def of(*documents):
        objects_ = objects.Objects()
        for document in (class_(), node("node-1"), slice_(gpus(2)), *documents):
            objects_.add(document)
        return objects_

    return of


def test_where_nothing_is_asked_for_no_node_is_asked(known):
    held = known(claim(held=[name(0)]))
    assert pending.report(held, held.claims[0]).nodes == ()
    asked = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "train"}]}
    for spec, is_asked in ((asked, True), (asked | {"nodeName": "node-1"}, False)):
        world = known(claim(), pod(**spec))
        assert bool(pending.report(world, world.pods[0]).nodes) == is_asked


def test_what_cannot_be_seen_decides_nothing(known):
    world = known(pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "train"}]))
    world.unseen.append("resourceclaims")
    answer = pending.report(world, world.pods[0])
    assert (answer.verdict, answer.nodes) == ("unknown", ())


@pytest.mark.parametrize(
    ("unseen", "verdict"),
    [("pods", "pending"), ("deviceclasses", "unknown"), ("resourceslices", "unknown")],
)
def test_a_class_whose_devices_may_not_be_seen(known, unseen, verdict):
    world = known()
    world.unseen.append(unseen)
    assert pending.report_class(world, "other").verdict == verdict


def test_how_many_gpus_of_a_hive_are_free(explain):
    """Two hives of four. One GPU of the first is held, and two of the second are."""
    devices = gpus(8)
    for index, device in enumerate(devices):
        device["attributes"]["fabric"] = {"string": f"xgmi-0x{index // 4 + 1:016x}"}
    held = [claim(f"held-{index}", held=[name(index)]) for index in (0, 4, 5)]
    constraint = {"requests": ["gpus"], "matchAttribute": f"{DRIVER}/fabric"}
    wanted = claim(count=4, constraints=[constraint])
    _, out = explain(node("node-1"), slice_(devices), *held, wanted)
    assert (
        "4 GPUs with one fabric are needed, 3 are free with fabric xgmi-0x0000000000000001" in out
    )
