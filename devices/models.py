"""The models that `fake` can write: what PCI and the kernel say of each. Data, and nothing that acts."""

from __future__ import annotations

from dataclasses import dataclass

# The sound function beside some GPUs, then memory in bytes where the driver tells it, then what the driver calls it.
_TABLE = """
nvidia:h100    10de:2330 10de:16c1 030200 a1 nvidia     -    -            NVIDIA H100 80GB HBM3
nvidia:a100    10de:20b2 10de:1463 030200 a1 nvidia     -    -            NVIDIA A100-SXM4-80GB
nvidia:l4      10de:27b8 10de:16ca 030200 a1 nvidia     -    -            NVIDIA L4
nvidia:t4      10de:1eb8 10de:12a2 030200 a1 nvidia     -    -            Tesla T4
nvidia:rtx4090 10de:2684 1043:889d 030000 a1 nvidia     22ba -            NVIDIA GeForce RTX 4090
amd:mi300x     1002:74a1 1002:74a1 120000 00 amdgpu     -    206141652992 AMD Instinct MI300X OAM
amd:mi210      1002:740f 1002:0c34 038000 02 amdgpu     -    68702699520  AMD Instinct MI210
amd:radeon     1002:744c 1eae:7901 030000 c8 amdgpu     ab30 25753026560  -
intel:max1550  8086:0bd5 8086:0000 038000 2f i915       -    137438953472 -
intel:flex170  8086:56c0 8086:4905 038000 08 i915       -    14940110848  -
intel:arc      8086:56a0 8086:1020 030000 08 i915       -    -            -
intel:b580     8086:e20b 8086:1100 030000 00 xe         -    -            -
intel:uhd770   8086:4680 1043:8694 030000 0c i915       -    -            -
bmc:aspeed     1a03:2000 1a03:2000 030000 52 ast        -    -            -
bmc:matrox     102b:0538 1590:00e4 030000 01 mgag200    -    -            -
virtual:bochs  1234:1111 1af4:1100 030000 02 bochs-drm  -    -            -
virtual:virtio 1af4:1050 1af4:1100 030000 01 virtio-pci -    -            -
virtual:vmware 15ad:0405 15ad:0405 030000 00 vmwgfx     -    -            -
"""


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    ids: str
    board: str
    class_code: str
    revision: str
    driver: str
    sound: str
    memory: str
    product: str


MODELS = {line.split()[0]: Model(*line.split(maxsplit=8)) for line in _TABLE.strip().splitlines()}
