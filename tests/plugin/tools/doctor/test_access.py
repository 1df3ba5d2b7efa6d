"""Findings about rights and other drivers, given facts. test_api gets the facts from a server."""

from claimd.node.report import conflicts
from claimd.tools.doctor import access, api, ask, rights
from claimd.tools.doctor.setting import Place
from claimd_devices.gpu import Inventory

DRIVER = "gpu.claimd.dev"


def test_what_the_role_has_to_say_for_another_driver_name():
    named = next(right for right in rights.RIGHTS if right.name == rights.DRIVER)
    for driver, is_told in (("gpu.example.com", True), (DRIVER, False)):
        (finding,) = access.judge_rights("a", ask.Answer(value=(named,)), driver)
        assert finding.remedy.endswith(f"resourceNames have to say {driver}") == is_told
        assert "kubectl apply -k deploy/base\n" in finding.remedy


def test_what_all_nodes_would_leave_alone():
    """A variable of the DaemonSet affects all nodes, and a file on the node only that node."""
    rival = conflicts.Rival(address="0000:01:00.0", driver="d", slice_name="s", device="d0")
    facts = api.Facts(slices=ask.Answer(value=()), conflicts=(rival,))
    file = Place(file="/etc/c.yaml")
    both = Place(file="/etc/c.yaml", variables=frozenset({"CLAIMD_EXCLUDE"}))
    for place, is_told in ((Place(), True), (both, True), (file, False)):
        finding, *_ = api.judge_rivals(facts, Inventory(), place)
        assert ("needs a DaemonSet of its own" in finding.remedy.splitlines()[-1]) == is_told
