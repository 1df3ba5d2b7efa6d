"""Values that do not change keep their lines, to each version and back."""

import copy

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from claimd.kubernetes.api import text
from claimd.kubernetes.api.objects import convert
from claimd.tools.cli import kept_yaml
from tests.support import samples

FILE = """\
# Copyright somebody
# kept

apiVersion: resource.k8s.io/v1beta1  # the oldest
kind: ResourceClaim
metadata:
  name: a   # its name
  annotations:
    # a script
    run: |
      #!/bin/sh
      echo "hi"
      # end of it
    quoted: "yes"
spec:
  devices:
    # what is asked for
    requests:
    # the first
    - name: r
      # which class
      deviceClassName: gpu.claimd.dev # all
      selectors:
      - cel:
          expression: >-
            device.driver == "x" &&
            true

    # the second
    - name: s
      deviceClassName: 'other'
---
# between
apiVersion: v1
kind: ConfigMap   # stays
metadata: {name: m, labels: {a: b}}
data:
  x: |
    a
    # b
# the end
"""
SLICE = """\
# a slice
apiVersion: resource.k8s.io/v1beta1
kind: ResourceSlice
metadata: {name: s}
spec:   # of one node
  nodeName: n
  pool: {name: p, generation: 1, resourceSliceCount: 1}
  driver: d
  devices:
    # first
    - name: g0
      basic:
        attributes:
          a: {string: x}   # note
        # eighty
        capacity:
          memory:
            value: "80Gi"

    # second

    - name: g1
      basic: {}
"""


def convert_yaml(content, to):
    documents = text.load_all(content)
    after = [convert.convert(document, to, documents).document for document in documents]
    return kept_yaml.rewrite(content, documents, after)


@pytest.mark.parametrize("content", [FILE, SLICE])
@pytest.mark.parametrize("to", ["v1", "v1beta2", "v1alpha3"])
def test_there_and_back_is_the_same_byte_for_byte(content, to):
    there = convert_yaml(content, to)
    assert there != content
    back = convert_yaml(there, "v1beta1")
    # A quantity that is text in one version and an object in another is written anew.
    assert back.replace("value: 80Gi", 'value: "80Gi"') == content


def test_lines_move_with_their_comments():
    lines = convert_yaml(FILE, "v1").splitlines()
    place = lines.index("      exactly:")
    assert lines[place - 2 : place + 4] == [
        "    # the first",
        "    - name: r",
        "      exactly:",
        "        # which class",
        "        deviceClassName: gpu.claimd.dev # all",
        "        selectors:",
    ]


def test_a_document_that_has_gone_takes_its_lines_along():
    first, second = text.load_all(FILE)
    assert kept_yaml.rewrite(FILE, [first, second], [None, second]).startswith("# between\n")
    assert kept_yaml.rewrite(FILE, [first, second], [None, None]) == ""


@pytest.mark.parametrize(
    "content", ["a: &x [1]\nb: *x\n", "{a: 1}\n", "a: {<<: {b: 1}}\n", "1: a\n", "- a\n"]
)
def test_what_is_not_understood_is_left_to_be_written_anew(content):
    documents = text.load_all(content)
    changed = [{"a": {"c": 2}}]
    written = kept_yaml.rewrite(content, documents, changed)
    assert written is None or text.load_all(written) == changed


@pytest.mark.parametrize("item", [{}, [], "b", None, {"c": 2}])
def test_a_map_in_a_list_becomes_anything(item):
    content = "# head\na:\n- b: 1\n- x # last\n"
    documents = text.load_all(content)
    written = kept_yaml.rewrite(content, documents, [{"a": [item, "x"]}])
    assert text.load_all(written) == [{"a": [item, "x"]}]
    assert "# head" in written


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab #:\n-'\"", max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("abc"), below),
    max_leaves=12,
)
MAPS = st.dictionaries(st.sampled_from("abc"), VALUES, min_size=1)


@pytest.mark.sampled
@settings(max_examples=samples.share(60), deadline=None)
@given(MAPS, MAPS, st.booleans())
def test_whatever_is_written_says_the_same(before, after, indented):
    """For any two documents the result parses as the second one, or there is no result."""
    content = "# head\n" + yaml.safe_dump(before, sort_keys=False, indent=2 + 2 * indented)
    written = kept_yaml.rewrite(content, [copy.deepcopy(before)], [after])
    assert written is None or text.load_all(written) == [after]
    if before == after:
        assert written == content
