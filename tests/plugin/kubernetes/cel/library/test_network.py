"""URLs as Go reads them: first as the target of a request, then as a URL."""

import pytest

from claimd.kubernetes.cel.errors import EvalError
from claimd.kubernetes.cel.library import network


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("/a?b", ("", "", "/a", "b")),
        ("//a/b", ("", "a", "/b", "")),
        ("///a/b", ("", "", "///a/b", "")),
        ("https://h:1/p?q#f", ("https", "h:1", "/p", "q")),
        ("HTTPS://h", ("https", "h", "", "")),
        ("mailto:someone", ("mailto", "", "", "")),
        ("mailto:%zz", ("mailto", "", "", "")),
        ("*", ("", "", "*", "")),
    ],
)
def test_parts(text, parts):
    url = network.parse_url(text)
    assert (url.scheme, url.host, url.path, url.query) == parts


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "a/b", "#a", "/a\n", "/%zz", "https://h/%zz", "https://h%zz/", "https://h:x/"),
        "https://u%zz@h/",
        # Without a scheme the whole target is a path, also what may be a user.
        "//u%zz@h/",
    ],
)
def test_refused(text):
    with pytest.raises(EvalError):
        network.parse_url(text)
