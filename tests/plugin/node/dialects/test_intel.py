"""Attributes, capacities and configurations in the words of Intel's driver."""

import pytest

from claimd.common import errors
from claimd.node import dialects
from claimd.node.dialects import intel
from claimd.node.publish import device, sharing
from tests.support import worlds


def gpu(**changes):
    facts = {
        "vendor": "intel",
        "vendor_id": 0x8086,
        "device_id": 0x56C0,
        "driver": "i915",
        "product": "Data Center GPU Flex 170",
        "family": "Data Center GPU Flex",
    }
    return worlds.gpu(**facts | changes)


def attributes(gpu_):
    words = intel.attributes(device.of_gpu(gpu_, []).attributes, gpu_, None)
    return {name: attribute.value for name, attribute in words.items()}


def test_whose_words_a_name_stands_for():
    assert dialects.of_driver("gpu.intel.com") is intel


def test_a_whole_gpu():
    described = attributes(gpu())
    expected = {
        "type": "gpu",
        "model": "Flex 170",
        "family": "Data Center Flex",
        "driver": "i915",
        "pciId": "0x56c0",
        "pciAddress": "0000:41:00.0",
        "pciRoot": "40",
        "productName": "Data Center GPU Flex 170",
    }
    assert {name: described.get(name) for name in expected} == expected
    assert list(described) == sorted(described)
    assert "health" not in described
    assert "sriov" not in described


@pytest.mark.parametrize(
    ("product", "family", "model", "series"),
    [
        ("Data Center GPU Max 1550", "Data Center GPU Max", "Max 1550", "Data Center Max"),
        ("Arc A770", "Arc A", "A770", "Arc A-Series"),
        ("Intel Arc B580", "Arc B", "B580", "Arc B-Series"),
        ("Arc Pro A40/A50", "Arc A", "A40/A50", "Arc Pro A-Series"),
        ("Intel Arc Pro B60", "Arc B", "B60", "Arc Pro B-Series"),
        (
            "UHD Graphics 770",
            "UHD and Iris Xe Graphics",
            "UHD Graphics 770",
            "UHD and Iris Xe Graphics",
        ),
        (None, None, "unknown", "unknown"),
    ],
)
def test_models_and_their_series(product, family, model, series):
    described = attributes(gpu(product=product, family=family))
    assert (described["model"], described["family"]) == (model, series)


def test_without_a_root_there_is_none():
    assert "pciRoot" not in attributes(gpu(pcie_root=None))


def test_a_device_is_a_thousand_of_its_thousandths():
    def capacity(**options):
        return intel.capacities(device.of_gpu(gpu(), [], **options).capacity, gpu())["millicores"]

    assert (capacity().value, capacity().request_policy) == ("1k", None)
    (rule,) = sharing.parse(["*=memory"])
    assert capacity(shared=rule.sharing).request_policy.default == "0"


def test_it_has_no_configurations():
    with pytest.raises(errors.ClaimError, match="no configurations of its own"):
        intel.check_config({"apiVersion": "gpu.intel.com/v1", "kind": "GpuConfig"})
