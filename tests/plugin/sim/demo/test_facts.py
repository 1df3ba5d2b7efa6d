"""Paths into objects, and checks of the values that they lead to."""

import pytest

from claimd.sim.demo import facts

SLICE = {
    "metadata": {"name": "one", "labels": {"app.kubernetes.io/name": "claimd"}},
    "spec": {
        "pool": {"generation": 2},
        "devices": [
            {"name": "gpu-a", "taints": [{"key": "claimd.dev/wedged", "effect": "NoExecute"}]},
            {"name": "gpu-b", "attributes": {"vendor": {"string": "amd"}}},
        ],
    },
}


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("metadata.name", ["one"]),
        ("spec.devices[1].name", ["gpu-b"]),
        ("spec.devices[*].name", ["gpu-a", "gpu-b"]),
        ("spec.devices[name=gpu-a].taints[*].key", ["claimd.dev/wedged"]),
        ('metadata.labels["app.kubernetes.io/name"]', ["claimd"]),
        ("spec.devices[name=gpu-c].taints", []),
        ("spec.devices[7]", []),
        ("metadata.name.first", []),
        ("metadata[0]", []),
    ],
)
def test_a_path_leads_to_values(path, values):
    assert facts.find(SLICE, path) == values


@pytest.mark.parametrize("path", ["", ".name", "a..b", "a[b", "a[", "a b"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ValueError, match=r"path"):
        facts.find(SLICE, path)


@pytest.mark.parametrize(
    ("check", "holds"),
    [
        ({"metadata.name": "one"}, True),
        ({"metadata.name": "two"}, False),
        ({"spec.pool.generation": 2}, True),
        ({"spec.pool.generation": "2"}, True),
        ({"spec.devices[*].name": {"equals": "gpu-b"}}, True),
        ({"spec.devices[*].name": {"not": "gpu-b"}}, False),
        ({"spec.devices[*].name": {"not": "gpu-c"}}, True),
        ({"spec.devices": {"exists": True}}, True),
        ({"status": {"exists": False}}, True),
        ({"spec.devices[*].taints[*]": {"count": 1}}, True),
        ({"spec.devices[*]": {"count": 3}}, False),
        ({"metadata.name": {"contains": "n"}}, True),
        ({"spec.devices[*].name": {"contains": "b"}}, True),
        ({"status.phase": {"contains": "b"}}, False),
    ],
)
def test_a_check_holds_or_not(check, holds):
    (parsed,) = facts.checks(check)
    assert parsed.holds(SLICE) is holds


def test_a_check_says_what_is_there_beside_what_should_be():
    (parsed,) = facts.checks({"metadata.name": "two"})
    assert parsed.describe_failure(SLICE) == "metadata.name is one, expected two"
    (parsed,) = facts.checks({"status.phase": "Running"})
    assert parsed.describe_failure(SLICE) == "status.phase is absent, expected Running"
    (parsed,) = facts.checks({"spec.devices[*]": {"count": 3}})
    assert parsed.describe_failure(SLICE) == "spec.devices[*] is 2, expected a count of 3"
    (parsed,) = facts.checks({"spec.devices": {"exists": False}})
    assert parsed.describe_failure(SLICE).endswith("expected it to be absent")


def test_a_check_with_an_unknown_word_names_it():
    with pytest.raises(
        ValueError, match=r"a: greater is not one of equals, not, contains, exists, count"
    ):
        facts.checks({"a": {"greater": 1}})
    with pytest.raises(ValueError, match="nothing is not one of"):
        facts.checks({"a": {}})


def test_variables_are_filled_in_everywhere():
    written = {"a ${gpu}": ["${gpu}-${node}", {"deep": "${node}"}], "count": 2}
    assert facts.variables_in(written) == {"gpu", "node"}
    assert facts.fill(written, {"gpu": "g", "node": "n"}) == {
        "a g": ["g-n", {"deep": "n"}],
        "count": 2,
    }
    with pytest.raises(ValueError, match="nothing was kept as 'gpu'; there is node"):
        facts.fill(written, {"node": "n"})


def test_what_is_long_is_cut_to_the_longest():
    longest = "x" * 120
    assert facts.format_value(longest) == longest
    assert facts.format_value(f"{longest}y") == f"{'x' * 117}..."
    assert facts.format_value(["a", 1]) == "['a', 1]"
    assert facts.format_value("a\n  b") == "a b"
