"""Claims of every sort: which pods run, which wait and why, in our scheduler's words and in
Kubernetes' own.
"""

import pytest

from tests.cluster.pending.documents import COUNTERS, parts
from tests.support.cluster_objects import build, claim, class_, rule, selector, slice_, template

H100 = 'device.attributes["gpu.claimd.dev"].productName.contains("H100")'
L4 = 'device.attributes["gpu.claimd.dev"].productName.contains("L4")'
LARGE = 'device.capacity["gpu.claimd.dev"].memory.compareTo(quantity("100Gi")) >= 0'
NVIDIA, AMD = "nvidia.gpu.claimd.dev", "amd.gpu.claimd.dev"
PART, ANY = "part.gpu.claimd.dev", "any.gpu.claimd.dev"
OTHER = "judged.example.com"


def pod(name, *claims, requests=None, **spec):
    """Of one container that has these claims; one with a = in front is made from a template."""
    entries = []
    for number, called in enumerate(claims):
        field = "resourceClaimTemplateName" if called[0] == "=" else "resourceClaimName"
        entries.append({"name": f"c{number}", field: called.lstrip("=")})
    resources = {"claims": [{"name": entry["name"]} for entry in entries]}
    if requests:
        resources |= {"requests": requests, "limits": requests}
    main = {
        "name": "main",
        "image": "i",
        "command": ["sleep", "100000"],
        "resources": resources,
    }
    spec = {"terminationGracePeriodSeconds": 0, "resourceClaims": entries} | spec
    document = build("Pod", name, {"containers": [main]} | spec, api="v1")
    del document["metadata"]["namespace"]
    return document


def asks(name, *requests_, **exactly):
    """A claim, in the namespace that it is created in."""
    document = claim(name, *requests_, **exactly)
    del document["metadata"]["namespace"]
    return document


def h100(**more):
    return {"deviceClassName": NVIDIA, "selectors": [selector(H100)]} | more


def requests_of(claims):
    """By claim, which requests have got how many devices."""
    requests = {}
    for claim_ in claims:
        allocation = (claim_.get("status") or {}).get("allocation")
        if allocation:
            results = allocation["devices"]["results"]
            requests[claim_["metadata"]["name"]] = sorted(result["request"] for result in results)
    return requests


def test_a_gpu_each_until_none_is_left(judges):
    for name in ("p", "q", "r"):
        judges.create(asks(name, **h100()), pod(name, name))
        judges.run(name) if name != "r" else judges.wait(name)

    judges.delete("pod/p")
    judges.run("r")


def test_several_gpus_for_one_pod(judges):
    judges.create(asks("two", **h100(count=2)), pod("p", "two"))
    judges.run("p")
    judges.create(asks("one", **h100()), pod("q", "one"))
    judges.wait("q")


def test_more_than_a_node_has(judges):
    judges.create(asks("three", **h100(count=3)), pod("p", "three"))
    reason, message = judges.wait("p")
    assert (reason, "cannot allocate all claims" in message) == ("Unschedulable", True)


def test_all_of_a_kind(judges):
    judges.create(asks("all", **h100(allocationMode="All", count=0)), pod("p", "all"))
    judges.run("p")
    assert judges.same(requests_of) == {"all": ["gpus", "gpus"]}


def test_pods_that_share_a_claim(judges):
    judges.create(asks("shared", **h100()), pod("p", "shared"), pod("q", "shared"))
    judges.run("p", "q")


def test_a_claim_of_each_pods_own(judges):
    template_ = template("one", claim("one", **h100()))
    del template_["metadata"]["namespace"]
    judges.create(template_)
    for name in ("p", "q"):
        judges.create(pod(name, "=one"))
        judges.run(name)
    judges.create(pod("r", "=one"))
    judges.wait("r")


def test_claims_that_fit_alone_and_not_together(judges):
    judges.create(asks("x", **h100(count=2)), asks("y", **h100()), pod("p", "x", "y"))
    judges.wait("p")


def test_parts_until_none_is_left(judges):
    for number in range(4):
        judges.create(asks(f"c{number}", deviceClassName=PART), pod(f"p{number}", f"c{number}"))
        judges.run(f"p{number}")
    judges.create(asks("more", deviceClassName=PART), pod("q", "more"))
    judges.wait("q")


def test_parts_that_exclude_each_other_by_counters(judges):
    """Of a driver that is not there: who gets one has a node, and does not run."""
    spec = {"driver": OTHER, "pool": {"name": OTHER, "generation": 1, "resourceSliceCount": 2}}
    judges.create(
        class_(OTHER, f'device.driver == "{OTHER}"'),
        slice_(parts(4, 3, 2), "a", called="judged-parts", **spec),
        slice_([], "a", called="judged-counters", sharedCounters=COUNTERS, **spec),
    )
    for name in ("p", "q"):
        judges.create(asks(name, deviceClassName=OTHER), pod(name, name))
        judges.place(name)
    judges.create(asks("r", deviceClassName=OTHER), pod("r", "r"))
    judges.wait("r")

    judges.delete("pod/q")
    judges.place("r")


def test_shares_of_a_gpu(judges):
    exactly = {"deviceClassName": NVIDIA, "selectors": [selector(L4)]}
    for name in ("p", "q"):
        judges.create(asks(name, **exactly), pod(name, name))
        judges.run(name)
    judges.create(asks("r", **exactly), pod("r", "r"))
    judges.wait("r")


def test_tainted_devices(judges):
    judges.create(rule("judged", "judged.example.com/no", driver="gpu.claimd.dev", pool="a"))
    judges.create(asks("x", **h100()), pod("p", "x"))
    judges.wait("p")
    tolerations = [{"key": "judged.example.com/no", "operator": "Exists"}]
    judges.create(asks("y", **h100(tolerations=tolerations)), pod("q", "y"))
    judges.run("q")


def test_devices_from_which_pods_are_evicted(judges):
    judges.create(asks("x", **h100()), pod("p", "x"))
    judges.run("p")
    evicting = rule("judged", "judged.example.com/no", driver="gpu.claimd.dev", pool="a")
    evicting["spec"]["taint"]["effect"] = "NoExecute"
    judges.create(evicting)
    judges.gone("pod/p")
    judges.create(asks("y", **h100()), pod("q", "y"))
    judges.wait("q")


def test_who_watches_is_not_counted(judges):
    judges.create(asks("two", **h100(count=2)), pod("p", "two"))
    judges.run("p")
    judges.create(asks("watch", **h100(adminAccess=True)), pod("q", "watch"))
    judges.run("q")


def test_the_first_alternative_that_is_free(judges):
    alternatives = [
        {"name": "two", "deviceClassName": NVIDIA, "count": 2, "selectors": [selector(H100)]},
        {"name": "one", "deviceClassName": AMD},
    ]
    for name in ("p", "q"):
        wish = {"name": "gpus", "firstAvailable": alternatives}
        judges.create(asks(name, wish), pod(name, name))
        judges.run(name)
    expected = {"p": ["gpus/two", "gpus/two"], "q": ["gpus/one"]}
    assert judges.same(requests_of) == expected

    judges.create(asks("r", {"name": "gpus", "firstAvailable": alternatives}), pod("r", "r"))
    judges.wait("r")


@pytest.mark.parametrize(
    ("constraint", "fits"),
    [("matchAttribute", True), ("distinctAttribute", False)],
)
def test_devices_that_belong_together(judges, constraint, fits):
    constraints = [{constraint: "gpu.claimd.dev/vendor"}]
    judges.create(
        asks("x", count=2, deviceClassName=NVIDIA, constraints=constraints), pod("p", "x")
    )
    judges.run("p") if fits else judges.wait("p")


def test_a_selector_that_one_device_meets(judges):
    for name in ("p", "q"):
        judges.create(asks(name, deviceClassName=ANY, selectors=[selector(LARGE)]), pod(name, name))
        judges.run(name) if name == "p" else judges.wait(name)


def test_a_selector_that_fails(judges):
    wrong = selector('device.attributes["gpu.claimd.dev"].vendr == "nvidia"')
    judges.create(asks("x", deviceClassName=ANY, selectors=[wrong]), pod("p", "x"))
    judges.wait("p")


def test_a_resource_that_a_class_stands_for(judges):
    for name in ("p", "q"):
        judges.create(pod(name, requests={"claimd.dev/gpu": "1"}, nodeSelector=on("b")))
        judges.run(name) if name == "p" else judges.wait(name)


def test_a_claim_that_is_not_there(judges):
    judges.create(pod("p", "nowhere"), asks("x", **h100()), pod("q", "x"))
    judges.run("q")
    judges.say_nothing("p")
    judges.create(asks("nowhere", **h100()))
    judges.run("p")


def test_a_class_that_is_not_there(judges):
    judges.create(asks("x", deviceClassName="nowhere"), pod("p", "x"))
    judges.wait("p")


def test_devices_and_cpus_on_different_nodes(judges):
    judges.create(asks("x", **h100()), pod("p", "x", nodeSelector=on("b")))
    judges.wait("p")
    judges.create(asks("y", **h100()), pod("q", "y", requests={"cpu": "100000"}))
    judges.wait("q")


def slow(place, *taints):
    """A device there that has to get ready before its pod is bound."""
    device = {"name": f"slow-{place}", "bindsToNode": True, "taints": list(taints)}
    device |= {"bindingConditions": ["d.org/Ready"], "bindingFailureConditions": ["d.org/Broken"]}
    pool = {"name": place, "generation": 1, "resourceSliceCount": 1}
    return slice_([device], place, called=f"judged-slow-{place}", driver=OTHER, pool=pool)


def conditions_of(claims):
    return [
        (result["bindingConditions"], result["bindingFailureConditions"])
        for claim_ in claims
        for result in claim_["status"]["allocation"]["devices"]["results"]
    ]


def test_a_device_that_has_to_get_ready(judges):
    judges.create(class_(OTHER, f'device.driver == "{OTHER}"'), slow("a"))
    judges.create(asks("x", deviceClassName=OTHER), pod("p", "x"))
    judges.hold("x", "a")
    assert judges.same(conditions_of) == [(["d.org/Ready"], ["d.org/Broken"])]
    judges.explain("p", "on a is not ready yet: its driver has not reported d.org/Ready")
    judges.report("x", OTHER, "a", "slow-a", "d.org/Ready")
    judges.place("p")


def test_a_device_that_fails_before_its_pod_is_bound(judges):
    judges.create(class_(OTHER, f'device.driver == "{OTHER}"'), slow("a"))
    judges.create(asks("x", deviceClassName=OTHER), pod("p", "x"))
    judges.hold("x", "a")
    broken = {"key": "judged.example.com/broken", "effect": "NoSchedule"}
    judges.create(slow("b"), slow("a", broken))
    judges.report("x", OTHER, "a", "slow-a", "d.org/Broken")
    judges.hold("x", "b")
    judges.report("x", OTHER, "b", "slow-b", "d.org/Ready")
    judges.place("p")


def test_a_pod_that_is_gated(judges):
    judges.create(asks("x", **h100()), pod("p", "x", schedulingGates=[{"name": "judged/a"}]))
    reason, _ = judges.wait("p")
    assert reason == "SchedulingGated"


def on(node):
    return {"kubernetes.io/hostname": node}
