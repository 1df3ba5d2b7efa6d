import pytest

from claimd.sim.controllers import job_indexes


@pytest.mark.parametrize(
    ("indexes", "text"),
    [([], ""), ([4], "4"), ([0, 1], "0,1"), ([0, 1, 2], "0-2"), ([7, 1, 3, 4, 5], "1,3-5,7")],
)
def test_what_is_written_is_read_again(indexes, text):
    assert job_indexes.text(indexes) == text
    assert job_indexes.parse(text, 100) == set(indexes)


def test_what_is_no_index_of_the_job_is_passed_over():
    assert job_indexes.parse("0,x,3-9,2-", 5) == {0, 2, 3, 4}
    assert job_indexes.parse(None, 5) == set()


@pytest.mark.parametrize(
    ("rule", "succeeded", "met"),
    [
        ({"succeededCount": 2}, {0}, False),
        ({"succeededCount": 2}, {0, 5}, True),
        ({"succeededIndexes": "0-2"}, {0, 1}, False),
        ({"succeededIndexes": "0-2"}, {0, 1, 2}, True),
        ({"succeededIndexes": "0-2", "succeededCount": 2}, {0, 2, 5}, True),
        ({"succeededIndexes": "0-2", "succeededCount": 2}, {0, 5}, False),
    ],
)
def test_rules_of_success(rule, succeeded, met):
    other = {"succeededIndexes": "9"}
    met_rule = job_indexes.met_rule({"rules": [other, rule]}, 10, succeeded)
    assert met_rule == (1 if met else None)
