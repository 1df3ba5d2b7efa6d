"""The two names of a capacity since Kubernetes 1.38, and the names before."""

from claimd.kubernetes.allocator import capacity_names, features

BEFORE, SINCE = features.release_defaults(37), features.release_defaults(38)


def test_a_name_with_the_driver_stands_for_the_one_without():
    assert capacity_names.own_name("d.org/memory", "d.org", SINCE) == "memory"
    assert capacity_names.own_name("e.org/memory", "d.org", SINCE) == "e.org/memory"
    assert capacity_names.own_name("d.org/memory", "d.org", BEFORE) == "d.org/memory"


def test_the_value_under_the_name_with_the_driver_counts():
    named = {"d.org/memory": 1, "memory": 2, "e.org/memory": 3}
    by_name = capacity_names.by_own_name(named, "d.org", SINCE)
    assert by_name == {"memory": 1, "e.org/memory": 3}


def test_names_that_mean_themselves_stay_as_they_are():
    """The same object is returned, because most devices have only such names."""
    named = {"d.org/memory": 1, "memory": 2}
    assert capacity_names.by_own_name(named, "d.org", BEFORE) is named
    plain = {"memory": 1, "cores": 2}
    assert capacity_names.by_own_name(plain, "d.org", SINCE) is plain
