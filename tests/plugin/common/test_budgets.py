"""The budgets that namespaces share."""

import pytest

from claimd.common import budgets

BUDGET = budgets.DividedBudget("claims", 100, "claims", "why", kept=30, few=5)


@pytest.mark.parametrize(
    ("total", "own", "has_room"),
    [
        (70, 70, True),
        (71, 71, False),
        (71, 6, False),
        (71, 5, True),
        (100, 5, True),
        (101, 1, False),
    ],
)
def test_the_last_places_are_for_namespaces_with_few(total, own, has_room):
    assert BUDGET.has_room(total, own) is has_room


def test_a_divided_budget_says_how_it_is_divided():
    assert str(BUDGET) == ("100 claims, and the last 30 are for namespaces that have at most 5")
