"""The cause stays, and what goes is at a boundary."""

import pytest

from claimd.tools.explain import brief

PULL = (
    'on node n container main does not start: Failed to pull image "localhost:9/none:1": failed to '
    'pull and unpack image "localhost:9/none:1": failed to resolve image: failed to do request: Head '
    '"https://localhost:9/v2/none/manifests/1": dial tcp 127.0.0.1:9: connect: connection refused'
)


@pytest.mark.parametrize(
    ("text", "room", "shorter"),
    [
        ("a short one", 20, "a short one"),
        ("exactly twenty chars", 20, "exactly twenty chars"),
        ("the cause is here (and an advice)", 20, "the cause is here"),
        ("the cause is here (orValue() helps)", 20, "the cause is here"),
        # The last error of a chain is the cause.
        (
            PULL,
            180,
            'on node n container main does not start: Failed to pull image "localhost:9/none:1": … '
            "dial tcp 127.0.0.1:9: connect: connection refused",
        ),
        ("a: b: c: d", 8, "a: b …"),
        # Other texts begin with the cause.
        ("the first thing; then the second", 24, "the first thing …"),
        ("one thing: another thing, and more", 30, "one thing: another thing …"),
        ("words without any sign at all here", 20, "words without any …"),
        # A line is not cut where it would say next to nothing.
        ("a: verylongwordwithoutanyboundary", 20, "a: verylongwordwithoutanyboundary"),
    ],
)
def test_shorter(text, room, shorter):
    assert brief.shorten(text, room) == shorter


def test_a_chain_keeps_as_much_of_its_end_as_fits():
    chain = "pod: main: " + ": ".join(f"step {number}" for number in range(20))
    assert brief.shorten(chain, 40) == "pod: main: … step 17: step 18: step 19"


def test_a_chain_keeps_the_name_that_it_is_about():
    chain = (
        'main does not start: ErrImagePull: failed to pull and unpack image "x/y:1": failed to '
        "resolve image: failed to do request: dial tcp: connection refused"
    )
    assert brief.shorten(chain, 120) == (
        'main does not start: ErrImagePull: failed to pull and unpack image "x/y:1": … '
        "dial tcp: connection refused"
    )


def test_a_chain_whose_end_is_long_keeps_its_beginning():
    chain = "pod: main: middle: " + 50 * "x" + " y"
    assert brief.shorten(chain, 25) == "pod: main: middle …"
