"""Claims of every sort: which pods run, which wait and why, in our scheduler's words and in
Kubernetes' own.
"""

import pytest

from tests.support.cluster_objects import claim, made, rule, selector, template

H100 = 'device.attributes["gpu.claimd.dev"].productName.contains("H100")'
L4 = 'device.attributes["gpu.claimd.dev"].productName.contains("L4")'
LARGE = 'device.capacity["gpu.claimd.dev"].memory.compareTo(quantity("100Gi")) >= 0'
NVIDIA, AMD = "nvidia.gpu.claimd.dev", "amd.gpu.claimd.dev"
INTEL, PART, ANY = "intel.gpu.claimd.dev", "part.gpu.claimd.dev", "any.gpu.claimd.dev"


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
    found = made("Pod", name, {"containers": [main]} | spec, api="v1")
    del found["metadata"]["namespace"]
    return found


def asks(name, *requests_, **exactly):
    """A claim, in the namespace that it is created in."""
    found = claim(name, *requests_, **exactly)
    del found["metadata"]["namespace"]
    return found


def h100(**more):
    return {"deviceClassName": NVIDIA, "selectors": [selector(H100)]} | more


def requests_of(claims):
    """By claim, which requests have got how many devices."""
    found = {}
    for one in claims:
        allocation = (one.get("status") or {}).get("allocation")
        if allocation:
            results = allocation["devices"]["results"]
            found[one["metadata"]["name"]] = sorted(result["request"] for result in results)
    return found


def test_a_gpu_each_until_none_is_left(both):
    for name in ("p", "q", "r"):
        both.create(asks(name, **h100()), pod(name, name))
        both.run(name) if name != "r" else both.wait(name)

    both.delete("pod/p")
    both.run("r")


def test_several_gpus_for_one_pod(both):
    both.create(asks("two", **h100(count=2)), pod("p", "two"))
    both.run("p")
    both.create(asks("one", **h100()), pod("q", "one"))
    both.wait("q")


def test_more_than_a_node_has(both):
    both.create(asks("three", **h100(count=3)), pod("p", "three"))
    reason, message = both.wait("p")
    assert (reason, "cannot allocate all claims" in message) == ("Unschedulable", True)


def test_all_of_a_kind(both):
    both.create(asks("all", **h100(allocationMode="All", count=0)), pod("p", "all"))
    both.run("p")
    assert both.same(requests_of) == {"all": ["gpus", "gpus"]}


def test_pods_that_share_a_claim(both):
    both.create(asks("shared", **h100()), pod("p", "shared"), pod("q", "shared"))
    both.run("p", "q")


def test_a_claim_of_each_pods_own(both):
    one = template("one", claim("one", **h100()))
    del one["metadata"]["namespace"]
    both.create(one)
    for name in ("p", "q"):
        both.create(pod(name, "=one"))
        both.run(name)
    both.create(pod("r", "=one"))
    both.wait("r")


def test_claims_that_fit_alone_and_not_together(both):
    both.create(asks("x", **h100(count=2)), asks("y", **h100()), pod("p", "x", "y"))
    both.wait("p")


def test_parts_until_none_is_left(both):
    for number in range(4):
        both.create(asks(f"c{number}", deviceClassName=PART), pod(f"p{number}", f"c{number}"))
        both.run(f"p{number}")
    both.create(asks("more", deviceClassName=PART), pod("q", "more"))
    both.wait("q")


def test_a_gpu_and_its_parts_exclude_each_other(both):
    both.create(asks("whole", deviceClassName=INTEL), pod("p", "whole"))
    both.run("p")
    both.create(asks("part", deviceClassName=PART), pod("q", "part"))
    both.wait("q")

    both.delete("pod/p")
    both.run("q")
    both.create(pod("r", "whole"))
    both.wait("r")


def test_shares_of_a_gpu(both):
    exactly = {"deviceClassName": NVIDIA, "selectors": [selector(L4)]}
    for name in ("p", "q"):
        both.create(asks(name, **exactly), pod(name, name))
        both.run(name)
    both.create(asks("r", **exactly), pod("r", "r"))
    both.wait("r")


def test_tainted_devices(both):
    both.create(rule("judged", "judged.example.com/no", driver="gpu.claimd.dev", pool="a"))
    both.create(asks("x", **h100()), pod("p", "x"))
    both.wait("p")
    tolerations = [{"key": "judged.example.com/no", "operator": "Exists"}]
    both.create(asks("y", **h100(tolerations=tolerations)), pod("q", "y"))
    both.run("q")


def test_devices_from_which_pods_are_evicted(both):
    both.create(asks("x", **h100()), pod("p", "x"))
    both.run("p")
    evicting = rule("judged", "judged.example.com/no", driver="gpu.claimd.dev", pool="a")
    evicting["spec"]["taint"]["effect"] = "NoExecute"
    both.create(evicting)
    both.gone("pod/p")
    both.create(asks("y", **h100()), pod("q", "y"))
    both.wait("q")


def test_who_watches_is_not_counted(both):
    both.create(asks("two", **h100(count=2)), pod("p", "two"))
    both.run("p")
    both.create(asks("watch", **h100(adminAccess=True)), pod("q", "watch"))
    both.run("q")


def test_the_first_alternative_that_is_free(both):
    alternatives = [
        {"name": "two", "deviceClassName": NVIDIA, "count": 2, "selectors": [selector(H100)]},
        {"name": "one", "deviceClassName": AMD},
    ]
    for name in ("p", "q"):
        wish = {"name": "gpus", "firstAvailable": alternatives}
        both.create(asks(name, wish), pod(name, name))
        both.run(name)
    found = {"p": ["gpus/two", "gpus/two"], "q": ["gpus/one"]}
    assert both.same(requests_of) == found

    both.create(asks("r", {"name": "gpus", "firstAvailable": alternatives}), pod("r", "r"))
    both.wait("r")


@pytest.mark.parametrize(
    ("constraint", "fits"),
    [("matchAttribute", True), ("distinctAttribute", False)],
)
def test_devices_that_belong_together(both, constraint, fits):
    constraints = [{constraint: "gpu.claimd.dev/vendor"}]
    both.create(asks("x", count=2, deviceClassName=NVIDIA, constraints=constraints), pod("p", "x"))
    both.run("p") if fits else both.wait("p")


def test_a_selector_that_one_device_meets(both):
    for name in ("p", "q"):
        both.create(asks(name, deviceClassName=ANY, selectors=[selector(LARGE)]), pod(name, name))
        both.run(name) if name == "p" else both.wait(name)


def test_a_selector_that_fails(both):
    wrong = selector('device.attributes["gpu.claimd.dev"].vendr == "nvidia"')
    both.create(asks("x", deviceClassName=ANY, selectors=[wrong]), pod("p", "x"))
    both.wait("p")


def test_a_resource_that_a_class_stands_for(both):
    for name in ("p", "q"):
        both.create(pod(name, requests={"claimd.dev/gpu": "1"}, nodeSelector=on("b")))
        both.run(name)
    both.create(pod("r", requests={"claimd.dev/gpu": "2"}, nodeSelector=on("b")))
    both.wait("r")


def test_a_claim_that_is_not_there(both):
    both.create(pod("p", "nowhere"))
    both.wait("p")
    both.create(asks("nowhere", **h100()))
    both.run("p")


def test_a_class_that_is_not_there(both):
    both.create(asks("x", deviceClassName="nowhere"), pod("p", "x"))
    both.wait("p")


def test_devices_and_cpus_on_different_nodes(both):
    both.create(asks("x", **h100()), pod("p", "x", nodeSelector=on("b")))
    both.wait("p")
    both.create(asks("y", **h100()), pod("q", "y", requests={"cpu": "100000"}))
    both.wait("q")


def test_a_pod_that_is_gated(both):
    both.create(asks("x", **h100()), pod("p", "x", schedulingGates=[{"name": "judged/a"}]))
    reason, _ = both.wait("p")
    assert reason == "SchedulingGated"


def on(node):
    return {"kubernetes.io/hostname": node}
