"""Inputs for a target: its examples, with bytes exchanged, taken away, doubled and put in."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

# What has been trouble for one parser or another.
NASTY = (
    *(
        b"\x00",
        b"\x1b[2J",
        b"\x7f",
        b"\x85",
        b"\r\n",
        b"\n",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xe2\x80\xa8",
    ),
    *(
        b'"',
        b"'",
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b"&a ",
        b"*a",
        b"!!python/",
        b"<<: ",
        b"- ",
    ),
    *(b"-1", b"0", b"1e999", b"NaN", b"9" * 25, b"0x", b"null", b"true", b"\\ud800", b"\\u0000"),
    *(
        b"../",
        b"/",
        b"%00",
        b"%2e%2e",
        b"=",
        b"(",
        b")",
        b"[" * 300,
        b"{" * 300,
        b"(" * 300,
        b"a" * 300,
        # Deeper than parsers go that call themselves.
        b"[" * 3000,
        b'{"a":' * 3000,
    ),
)


@st.composite
def spoilt(draw: st.DrawFn, examples: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """One of the examples after some changes."""
    data = draw(st.sampled_from(examples))
    pieces = st.one_of(st.sampled_from([*words, *NASTY]), st.binary(max_size=8))
    for _ in range(draw(st.integers(0, 6))):
        begin = draw(st.integers(0, len(data)))
        end = min(len(data), begin + draw(st.sampled_from((0, 0, 1, 2, 8, 64))))
        piece = draw(pieces)
        if draw(st.booleans()) and end > begin:
            piece = data[begin:end] * 2
        data = data[:begin] + piece + data[end:]
    return data


def of(examples: Sequence[bytes], words: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    return st.one_of(
        spoilt(examples, words),
        spoilt(examples, words),
        spoilt(examples, words),
        st.binary(max_size=400),
        st.lists(st.sampled_from([*words, *NASTY]), max_size=30).map(b"".join),
    )
