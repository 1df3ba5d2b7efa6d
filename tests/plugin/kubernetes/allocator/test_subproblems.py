"""The parts of what is asked for: which there are, in which order, and the claims of each."""

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
    found = parts(*claims)
    assert [(0, 0), (0, 1), (2, 0), (2, 1)] in found
    assert sorted(subproblems.everything(claims)) not in found


def test_no_part_comes_twice():
    """A claim of one request is that request, and two of them are a pair of either kind."""
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
