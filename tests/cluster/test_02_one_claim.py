"""Line 2: a pod with one claim gets its device nodes, and nothing of the claim remains afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.conftest import Running
from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver, allotted, given, nodes, variables
from tests.cluster.kubectl import Kubectl, KubectlError, Object
from tests.cluster.objects import DRIVER, claim, devices, pod, request


@pytest.mark.parametrize("vendor", ["nvidia", "amd", "intel"])
def test_container_has_nodes_and_variables_and_status_says_so(
    ns: Kubectl, driver: Driver, running: Running, vendor: str
) -> None:
    asked = devices(request(device_class=f"{vendor}.{DRIVER}"))
    ns.create(claim("one", asked), pod("user", driver.node, {"gpu": "one"}))
    running("user")

    (address,) = given(ns, "user")
    device = driver.published()[address]
    assert device["attributes"]["vendor"]["string"] == vendor
    assert allotted(ns.get("resourceclaim", "one")) == {"gpu": [device["name"]]}
    seen, expected = nodes(ns, "user"), driver.tree_numbers(address)
    assert expected, f"the tree has no device nodes for {address}"
    assert {path: seen.get(path) for path in expected} == expected
    assert variables(ns, "user")[f"CLAIMD_{device['name'].upper().replace('-', '_')}"] == address

    entry = _status(ns)
    assert (entry["driver"], entry["pool"], entry["device"]) == (
        DRIVER,
        driver.node,
        device["name"],
    )
    (ready,) = [c for c in entry["conditions"] if c["type"] == "Ready"]
    assert ready["status"] == "True"
    assert ready["reason"]
    assert ready["message"]
    assert entry["data"]["pciBusID"] == address
    assert set(expected) <= set(entry["data"]["nodes"])


def test_nothing_is_left_after_deletion(ns: Kubectl, driver: Driver, running: Running) -> None:
    ns.create(claim("one"), pod("user", driver.node, {"gpu": "one"}))
    running("user")
    uid = ns.get("resourceclaim", "one")["metadata"]["uid"]
    _status(ns)
    assert uid in driver.cdi_files()
    assert uid in driver.records()

    ns.delete("pod", "user")
    wait_for("the CDI file to go", lambda: uid not in driver.cdi_files(), seconds=15)
    wait_for("the record to go", lambda: uid not in driver.records(), seconds=15)
    wait_for(
        "the status to go",
        lambda: not ns.get("resourceclaim", "one")["status"].get("devices"),
        seconds=15,
    )


def test_configuration_reaches_the_container(ns: Kubectl, driver: Driver, running: Running) -> None:
    asked = configured(environment={"SUITE": "was here"})
    ns.create(claim("one", asked), pod("user", driver.node, {"gpu": "one"}))
    running("user")
    assert variables(ns, "user")["SUITE"] == "was here"


def configured(**fields: Any) -> Object:
    parameters = {"apiVersion": "claimd.dev/v1alpha1", "kind": "GpuConfig", **fields}
    return devices(config=[{"opaque": {"driver": DRIVER, "parameters": parameters}}])


def test_unknown_field_of_a_configuration_is_refused_when_it_is_written(ns: Kubectl) -> None:
    with pytest.raises(KubectlError, match="unknown field 'enviroment'; known fields are"):
        ns.create(claim("one", configured(enviroment={})))


def test_variable_that_a_claim_cannot_set_is_named_to_the_user(ns: Kubectl, driver: Driver) -> None:
    """Admission accepts the claim, because a class could allow the variable. Prepare refuses it."""
    wrong = configured(environment={"LD_PRELOAD": "/x"})
    ns.create(claim("one", wrong), pod("user", driver.node, {"gpu": "one"}))

    def refusals() -> list[str]:
        reason = "--field-selector=reason=FailedPrepareDynamicResources"
        return [
            event["message"]
            for event in ns.list("events", reason)
            if "LD_PRELOAD, which a claim may set only if" in event["message"]
        ]

    wait_for("an event that names the variable", refusals, seconds=30)


def _status(ns: Kubectl) -> Object:
    def look() -> Object:
        entries = ns.get("resourceclaim", "one")["status"].get("devices", [])
        assert len(entries) == 1, entries
        entry: Object = entries[0]
        return entry

    return wait_for("status.devices", look, seconds=15)
