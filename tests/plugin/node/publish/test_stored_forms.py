"""What is known of how the API server stores our slices."""

from claimd.kubernetes.api.meta import ObjectMeta
from claimd.kubernetes.api.resource import Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from claimd.node.publish import pool, stored_forms
from tests.support.worlds import DRIVER, NODE


def slice_with(*devices):
    spec = ResourceSliceSpec(
        driver=DRIVER,
        node_name=NODE,
        pool=ResourcePool(name=NODE, generation=1, resource_slice_count=1),
        devices=[Device(name=name) for name in devices],
    )
    return ResourceSlice(metadata=ObjectMeta(name="s"), spec=spec)


def test_a_slice_that_is_stored_as_it_was_sent_has_no_other_form_any_more():
    forms, sent = stored_forms.StoredForms(), slice_with("a")
    assert forms.learn(sent, {"spec": pool.body(slice_with("a", "b").spec)}) != []
    assert set(forms.forms) == {"s"}
    assert forms.learn(sent, {"spec": pool.body(sent.spec)}) == []
    assert forms.forms == {}


def test_the_api_server_is_asked_once_about_a_slice_with_the_same_devices():
    forms, sent = stored_forms.StoredForms(), slice_with("a")
    own = pool.body(sent.spec)
    stored = {"spec": own | {"nodeName": "other"}}
    assert forms.could_be_stored_form(sent, stored)
    assert not forms.could_be_stored_form(sent, {"spec": own})
    assert not forms.could_be_stored_form(slice_with("a", "b"), stored)
    forms.learn(sent, {"spec": own})
    assert not forms.could_be_stored_form(sent, stored)
