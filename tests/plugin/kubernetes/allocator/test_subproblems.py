"""Tests of the parts of requests: their order, and the claims of a part."""

from claimd.kubernetes.allocator import subproblems

A, B, C = [["a"], ["b"], ["c"]], [["d"]], [["e"], ["f"]]


def parts(*claims):
    return [sorted(part) for part in subproblems.parts(claims)]


def test_requests_come_before_claims_and_claims_before_pairs():
    assert parts(A) == [
        [(0, 0)],
        [(0, 1)],
        [(0, 2)],
        [(0, 0), (0, 1)],
        [(0, 0), (0, 2)],
        [(0, 1), (0, 2)],
    ]
    assert parts(C, C)[:6] == [
        [(0, 0)],
        [(0, 1)],
        [(1, 0)],
        [(1, 1)],
        [(0, 0), (0, 1)],
        [(1, 0), (1, 1)],
    ]


def test_two_claims_of_three_are_a_part_and_all_three_are_not():
    claims = (C, C, C)
    found_parts = parts(*claims)
    assert [(0, 0), (0, 1), (2, 0), (2, 1)] in found_parts
    assert sorted(subproblems.everything(claims)) not in found_parts


def test_no_part_comes_twice():
    """A claim with one request is the same part as its request, and comes only once."""
    assert parts(B, B, B) == [
        [(0, 0)],
        [(1, 0)],
        [(2, 0)],
        [(0, 0), (1, 0)],
        [(0, 0), (2, 0)],
        [(1, 0), (2, 0)],
    ]


def test_a_single_request_has_no_part():
    assert parts(B) == []


def test_a_part_keeps_the_place_of_each_claim():
    part = frozenset([(0, 1), (2, 0)])
    assert subproblems.select_part((A, B, C), part) == [[["b"]], [], [["e"]]]
