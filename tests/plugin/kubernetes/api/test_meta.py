"""The parts of all objects: their wire form, and the fields that are left out."""

import msgspec

from claimd.kubernetes.api.meta import Condition, ObjectMeta, OwnerReference, PartialObject


def test_what_was_not_said_is_not_written():
    assert msgspec.to_builtins(ObjectMeta(name="n")) == {"name": "n"}
    owner = OwnerReference(api_version="v1", kind="Node", name="n", uid="u", controller=False)
    assert msgspec.to_builtins(owner) == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "n",
        "uid": "u",
        "controller": False,
    }


def test_what_is_missing_has_no_generation_and_no_owner():
    read = msgspec.convert({"kind": "Pod", "later": 1}, PartialObject)
    assert read == PartialObject(kind="Pod", metadata=ObjectMeta())
    assert (read.metadata.generation, read.metadata.owner_references) == (0, [])


def test_a_condition_is_written_whole():
    condition = Condition(type="Ready", status="True", reason="R", last_transition_time="t")
    written = msgspec.to_builtins(condition)
    assert written == {
        "type": "Ready",
        "status": "True",
        "reason": "R",
        "lastTransitionTime": "t",
    }
