"""Tests of the text forms of devices, shares and pools."""

from claimd.kubernetes.allocator.identity import DeviceID, PoolID, SharedDeviceID


def test_texts():
    assert str(PoolID("d.org", "p")) == "d.org/p"
    assert str(DeviceID("d.org", "p", "a")) == "d.org/p/a"
    assert str(SharedDeviceID("d.org", "p", "a")) == "d.org/p/a"
    share = SharedDeviceID("d.org", "p", "a", "s")
    assert str(share) == "d.org/p/a/s"
    assert share.device_id == DeviceID("d.org", "p", "a")
