"""Tests of label and field selectors."""

import pytest

from claimd.sim.apiserver.types import selectors, status_errors


def obj(**labels):
    return {"metadata": {"name": "o", "labels": labels}, "spec": {"nodeName": "n", "done": True}}


@pytest.mark.parametrize(
    ("text", "selected", "not_selected"),
    [
        ("a", obj(a="1"), obj(b="1")),
        ("!a", obj(b="1"), obj(a="1")),
        ("a=1", obj(a="1"), obj(a="2")),
        ("a==1,b=2", obj(a="1", b="2"), obj(a="1")),
        ("a!=1", obj(), obj(a="1")),
        ("a in (1, 2)", obj(a="2"), obj()),
        ("a notin (1,2),b", obj(b="1"), obj(a="1", b="1")),
        ("x.io/a in (1),b=2", {"metadata": {"labels": {"x.io/a": "1", "b": "2"}}}, obj(b="2")),
        ("a>1", obj(a="2"), obj(a="x")),
        ("a<2", obj(a="1"), obj(a="2")),
        # Python's int() accepts all of these.
        ("a>-5", obj(a="+7"), obj(a="1_0")),
        ("a<5", obj(a="-1"), obj(a="\u0663")),
        ("a>1", obj(a="9223372036854775807"), obj(a="9223372036854775808")),
        ("a=", obj(a=""), obj(a="1")),
    ],
)
def test_labels(text, selected, not_selected):
    selects = selectors.labels(text)
    assert selects(selected)
    assert not selects(not_selected)


@pytest.mark.parametrize("text", ["a b", "a,", "=1", "a in (1", "a,,b", "a>x", "a<1_0", "a>"])
def test_labels_that_say_nothing(text):
    with pytest.raises(status_errors.StatusError) as caught:
        selectors.labels(text)
    assert caught.value.code == 400


def test_fields():
    known = ("metadata.name", "spec.nodeName", "spec.done", "spec.absent")
    assert selectors.fields("metadata.name=o,spec.nodeName!=m,spec.done=true", known)(obj())
    assert not selectors.fields("spec.nodeName==m", known)(obj())
    assert selectors.fields("spec.absent=", known)(obj())
    assert selectors.fields("", known) is None
    assert selectors.labels("") is None
    with pytest.raises(status_errors.StatusError, match=r"field label not supported: spec\.x"):
        selectors.fields("spec.x=1", known)
    with pytest.raises(status_errors.StatusError, match="can't understand 'nonsense'"):
        selectors.fields("nonsense", known)


def test_both():
    named, labelled = selectors.fields("metadata.name=o", ["metadata.name"]), selectors.labels("a")
    assert selectors.both(named, None) is named
    assert selectors.both(None, None) is None
    assert selectors.both(named, labelled)(obj(a="1"))
    assert not selectors.both(named, labelled)(obj())


def test_a_selector_takes_what_meets_all_of_it():
    entry = {"key": "tier", "operator": "In", "values": ["gold", "lead"]}
    selector = {"matchLabels": {"app": "a"}, "matchExpressions": [entry]}
    assert selectors.matches(selector, obj(app="a", tier="gold"))
    assert not selectors.matches(selector, obj(app="b", tier="gold"))
    assert not selectors.matches(selector, obj(app="a", tier="tin"))
    assert not selectors.matches(selector, obj(app="a"))
    assert not selectors.matches(selector, obj(tier="gold"))
    assert selectors.matches({}, obj())
