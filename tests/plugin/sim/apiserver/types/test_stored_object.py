"""Tests of the encoded forms of an object, which live no longer than the object."""

import copy
import json

from claimd.sim.apiserver.types.stored_object import StoredObject


def test_a_copy_is_a_document_of_its_own():
    stored = StoredObject({"metadata": {"name": "a"}})
    assert stored.encoded is not None
    stored.encoded["v1"] = b"what was written"
    copied = copy.deepcopy(stored)
    assert type(copied) is dict
    copied["metadata"]["name"] = "b"
    assert stored == {"metadata": {"name": "a"}}
    assert type(stored | {"spec": {}}) is dict


def test_it_is_a_document_as_others_are():
    stored = StoredObject({"metadata": {"name": "a"}})
    assert json.loads(json.dumps(stored)) == stored


def test_of_what_is_not_the_latest_nothing_is_kept():
    stored = StoredObject({})
    stored.supersede()
    assert stored.encoded is None
