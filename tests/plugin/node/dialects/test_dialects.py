"""A device has room for a vendor's words, whatever there is to tell of it and however it is shared; and who does not
use them does not load them.
"""

import subprocess
import sys

import pytest

from claimd.kubernetes.api import limits
from claimd.node import dialects
from claimd.node.publish import device, sharing
from claimd_devices.gpu import DeviceNode, Engines, Inventory
from tests.support import worlds

FULL = {
    "kind": "partition",
    "parent": "gpu-0000-41-00-0",
    "profile": "cpx_nps4",
    "driver_version": "580.95.05",
    "family": "Arc A",
    "architecture": "gfx942",
    "vbios": "1",
    "integrated": True,
    "compute_units": 38,
    "tiles": 2,
    "link_width": 16,
    "link_speed": 32000,
    "carve_out": 1 << 30,
    "iommu_group": 7,
    "nodes": (
        DeviceNode(path="/dev/dri/card0", major=226, minor=0),
        DeviceNode(path="/dev/dri/renderD128", major=226, minor=128),
        DeviceNode(path="/dev/nvidia0", major=195, minor=0),
    ),
}


@pytest.mark.parametrize("vendor", ["nvidia", "amd", "intel"])
@pytest.mark.parametrize("kind", ["gpu", "partition", "vf"])
def test_there_are_never_more_attributes_and_capacities_than_a_device_may_have(vendor, kind):
    dialect = dialects.of_driver(f"gpu.{vendor}.com")
    whole = worlds.gpu(0, vendor=vendor)
    own = {"vendor": vendor, "kind": kind, "name": f"{whole.name}-part"}
    if vendor == "nvidia":
        own["engines"] = Engines(copy=8, decoders=7, encoders=4, jpeg=7, optical_flow=1)
    gpu = worlds.gpu(0, **FULL | own)
    known = Inventory.from_unsorted([whole, gpu])
    for rule in ("*=memory", "*=shares:4"):
        (how,) = sharing.parse([rule])
        described = device.of_gpu(gpu, [], shared=how.sharing)
        words = dialects.attributes(dialect, described.attributes, gpu, known)
        count = len(words) + len(dialect.capacities(described.capacity, gpu))
        assert count <= limits.ATTRIBUTES_AND_CAPACITIES
        assert "console" not in words


def test_no_vendors_words_are_loaded_under_our_own_name():
    program = (
        "import sys; from claimd.node.publish import slices; from claimd.node.prepare import metadata, plan;"
        "slices.Builder('gpu.claimd.dev', 'n');"
        "print([name for name in sys.modules if name.startswith('claimd.node.dialects.')]);"
        "slices.Builder('gpu.intel.com', 'n'); print('claimd.node.dialects.intel' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\nTrue\n"
