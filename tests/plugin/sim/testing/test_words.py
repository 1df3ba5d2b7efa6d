"""Nodes from a command line or a test."""

import pytest

from claimd.common import errors
from claimd.sim.testing import words


def test_gpus_are_those_of_claimd_fake_write_and_bring_claimd():
    node = words.machine("one=nvidia:h100=2 amd:mi300x,mode=cpx")
    assert (node.name, node.claimd) == ("one", True)
    assert node.gpus == ("nvidia:h100=2", "amd:mi300x,mode=cpx")


@pytest.mark.parametrize("given", ["bare", "bare="])
def test_a_node_of_which_nothing_is_said_waits_for_another_driver(given):
    bare = words.machine(given)
    assert (bare.name, bare.gpus, bare.claimd) == ("bare", (), False)


def test_a_test_may_say_more_of_a_node():
    given = {"gpus": ["nvidia:l4"], "settings": {"rescan": 5}}
    node = words.machine_of("one", given)
    assert (node.gpus, node.settings, node.claimd) == (("nvidia:l4",), {"rescan": "5"}, True)
    assert not words.machine_of("one", {"gpus": "nvidia:l4", "claimd": False}).claimd
    assert words.machine_of("one", {"claimd": True}).claimd


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("One", "", "node 'One': expected up to 31 lower-case letters"),
        ("a" * 32, "", "expected up to 31"),
        ("../up", "", "expected up to 31"),
        ("one", "nvidia:l5", "node 'one': .*did you mean nvidia:l4"),
        ("one", {"gpu": "nvidia:l4"}, "node 'one': gpu is not one of gpus, settings, claimd"),
    ],
)
def test_what_cannot_be_is_refused(name, given, said):
    with pytest.raises(errors.UsageError, match=said):
        words.machine_of(name, given)
