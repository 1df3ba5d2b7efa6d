"""The memory of NVIDIA's boards in GiB: what makers publish, and where one id stands for several sizes.

Sources: NVIDIA's guide to MIG and its data sheets (read 2026-03); the names in pci.ids that say the size
(version 2026.08.22); a public table of 1,286 NVIDIA boards (RightNow-GPU-Database, 2026-02-07), of which
each size was compared with the others. akash-network/provider-configs and the dumps of nvidia-smi in
tests/cases are the judges, and nothing here comes from them.
"""

from __future__ import annotations

import re

# By the names that NVIDIA's driver has, without NVIDIA before them: as NVIDIA's guide to MIG has it, which is what
# nvidia-smi shows, rounded up (B200 183359 MiB, GB200 189471, H200 and H20-3e 143771; B300 275040 and GB300 284208,
# of which the guide has no size).
_BY_DRIVER = {
    2: "T400|Quadro P600 2GB|Tesla K520M",
    4: "T1000|T600|T400 4GB|T400E|T600 Laptop GPU|T550 Laptop GPU|Quadro T2000|Quadro T2000 with Max-Q Design|Quadro T1000|"
       "Quadro T1000 with Max-Q Design|T1200 Laptop GPU|DGX Display|RTX A400|RTX A2000 Laptop GPU|RTX A1000 Laptop GPU|"
       "RTX A500 Laptop GPU|RTX A1000 Embedded GPU|RTX A500 Embedded GPU|RTX 500 Ada Generation Laptop GPU|Tesla M4",
    6: "GeForce RTX 3060 Laptop GPU|Quadro RTX 3000|Quadro RTX 3000 with Max-Q Design|RTX A3000 Laptop GPU|RTX A2000|RTX A1000 6GB Laptop GPU|"
       "RTX 1000 Ada Generation Laptop GPU|RTX PRO 500 Blackwell Generation Laptop GPU|RTX PRO 500 Blackwell Embedded GPU",
    8: "GeForce RTX 3070 Ti Laptop GPU|Quadro RTX 4000|Quadro RTX 4000 with Max-Q Design|T1000 8GB|RTX A4000 Laptop GPU|RTX A1000|"
       "RTX A2000 8GB Laptop GPU|RTX A2000 Embedded GPU|RTX 3000 Ada Generation Laptop GPU|RTX 2000 Ada Generation Laptop GPU|"
       "RTX 2000 Ada Generation Embedded GPU|RTX PRO 2000 Blackwell Generation Laptop GPU|RTX PRO 2000 Blackwell Embedded GPU|"
       "RTX PRO 1000 Blackwell Generation Laptop GPU|Tesla P4|Tesla M6|Tesla M60|Tesla M10|"
       "GeForce RTX 3070|GeForce RTX 3070 Ti|GeForce RTX 3060 Ti|GeForce RTX 4060|GeForce RTX 5060|GeForce RTX 2080|"
       "GeForce RTX 2080 SUPER|GeForce RTX 2070|GeForce RTX 2070 SUPER|GeForce RTX 2060 SUPER|GeForce RTX 5050",
    11: "GeForce RTX 2080 Ti|GeForce GTX 1080 Ti",
    12: "RTX A3000 12GB Laptop GPU|RTX A2000 12GB|RTX 4000 Ada Generation Laptop GPU|RTX 3500 Ada Generation Laptop GPU|"
       "RTX 3500 Ada Generation Embedded GPU|RTX PRO 3000 Blackwell Generation Laptop GPU|GeForce RTX 4070|GeForce RTX 4070 SUPER|"
       "GeForce RTX 4070 Ti|GeForce RTX 5070|GeForce RTX 3080 Ti|Tesla K80|Tesla K40m|Tesla K40c|Tesla P100-PCIE-12GB",
    16: "Quadro RTX 5000|Quadro RTX 5000 with Max-Q Design|Tesla T4|RTX A5500 Laptop GPU|RTX A5000 Laptop GPU|RTX A4000|"
        "RTX A4500 Laptop GPU|RTX A4500 Embedded GPU|A16|A2|RTX 5000 Ada Generation Laptop GPU|RTX 5000 Ada Generation Embedded GPU|"
        "RTX 2000 Ada Generation|RTX 2000E Ada Generation|RTX PRO 4000 Blackwell Generation Laptop GPU|RTX PRO 4000 Blackwell Embedded GPU|"
        "RTX PRO 2000 Blackwell|GeForce RTX 4080|GeForce RTX 4080 SUPER|GeForce RTX 4070 Ti SUPER|GeForce RTX 5080|GeForce RTX 5070 Ti|"
        "Tesla P100-PCIE-16GB|Tesla P100-SXM2-16GB|Tesla V100-PCIE-16GB|Tesla V100-SXM2-16GB",
    20: "RTX A4500|A10M|RTX 4000 SFF Ada Generation|RTX 4000 Ada Generation",
    24: "TITAN RTX|Quadro RTX 6000|A30|A30X|RTX A5000|RTX A5500|A10|A10G|RTX 4500 Ada Generation|L2|L4|RTX PRO 4000 Blackwell|"
        "RTX PRO 4000 Blackwell SFF Edition|RTX PRO 5000 Blackwell Generation Laptop GPU|RTX PRO 5000 Blackwell Embedded GPU|"
        "GeForce RTX 3090|GeForce RTX 3090 Ti|GeForce RTX 4090|GeForce RTX 4090 D|Tesla P40|Tesla M40 24GB",
    32: "RTX 5000 Ada Generation|RTX PRO 4500 Blackwell|RTX PRO 4500 Blackwell Server Edition|GeForce RTX 5090|GeForce RTX 5090 D|"
        "Tesla V100-PCIE-32GB|Tesla V100-SXM2-32GB|Tesla V100-SXM3-32GB|Tesla V100S-PCIE-32GB|Quadro GV100",
    40: "A100-SXM4-40GB|A100-PG509-200|A800-SXM4-40GB|A100-PCIE-40GB|A100 PCIe 40GB|A800 40GB Active",
    48: "Quadro RTX 8000|RTX A6000|A40|RTX 6000 Ada Generation|RTX 5880 Ada Generation|L40|L40S|L20|RTX PRO 5000 Blackwell",
    64: "A100-SXM-64GB",
    72: "RTX PRO 5000 72GB Blackwell",
    80: "A100-SXM4-80GB|A100X|PG509-210|A100 80GB PCIe|A800-SXM4-80GB|A800 80GB PCIe|A800 80GB PCIe LC|AX800|H800 PCIe|H800|"
        "H100 80GB HBM3|H100 PCIe",
    84: "RTX 6000D",
    94: "H100 NVL|H800 NVL",
    96: "H20|GH200 120GB|GH200 480GB|RTX PRO 6000 Blackwell Workstation Edition|RTX PRO 6000 Blackwell Max-Q Workstation Edition|"
        "RTX PRO 6000 Blackwell Server Edition",
    141: "H20-3e|H200|H200 NVL",
    144: "GH200 144G HBM3e",
    180: "B200",
    186: "GB200",
    269: "B300 SXM6 AC",
    278: "GB300",
}  # fmt: skip
BY_DRIVER = {name: gib for gib, names in _BY_DRIVER.items() for name in names.split("|")}

# By the names in the brackets of pci.ids, for ids of which the driver's name does not tell the size: GeForce boards
# of one name have different sizes, but their ids do not.
_BY_PCI_IDS = {
    2: "GeForce GTX 1050|GeForce GT 1010|Quadro P600|Quadro P400|Quadro P500 Mobile|Quadro P520",
    4: "GeForce GTX 1050 Ti|GeForce GTX 1050 Ti Max-Q|Quadro P1000|Quadro P1000 Mobile|Quadro P2000 Mobile|"
       "Quadro P600 Mobile|GeForce GTX 1650|GeForce GTX 1650 Mobile|GeForce GTX 1650 Mobile / Max-Q|"
       "GeForce GTX 1650 Mobile Refresh|GeForce GTX 1650 Ti Mobile|GeForce GTX 1650 SUPER|GeForce GTX 1630|"
       "GeForce RTX 2050|GeForce RTX 3050 Ti Mobile|GeForce RTX 3050 Ti Mobile / Max-Q|GeForce RTX 3050 A Laptop GPU|"
       "RTX A4 Mobile",
    5: "Quadro P2000|Quadro P2200",
    6: "P106-100|Quadro P3000 Mobile|Quadro P3200 Mobile|CMP 30HX|GeForce RTX 2060|GeForce RTX 2060 Rev. A|"
       "GeForce RTX 2060 Mobile|GeForce RTX 2060 Max-Q|GeForce GTX 1660|GeForce GTX 1660 SUPER|GeForce GTX 1660 Ti|"
       "GeForce GTX 1660 Ti Mobile|GeForce RTX 3060 Mobile / Max-Q|GeForce RTX 3060 Laptop GPU|"
       "GeForce RTX 4050 Max-Q / Mobile",
    8: "GeForce GTX 1080|GeForce GTX 1070|GeForce GTX 1070 Ti|GeForce GTX 1080 Mobile|GeForce GTX 1070 Mobile|"
       "Quadro P4000|Quadro P4000 Mobile|Quadro P4200 Mobile|CMP 40HX|CMP 70HX|GeForce RTX 2080 Mobile|"
       "GeForce RTX 2070 SUPER Mobile / Max-Q|GeForce RTX 2080 SUPER Mobile / Max-Q|GeForce RTX 2070 Mobile|"
       "GeForce RTX 2070 Mobile / Max-Q|GeForce RTX 2070 Mobile / Max-Q Refresh|Geforce RTX 3050|GeForce RTX 3050 OEM|"
       "GeForce RTX 3070 Mobile / Max-Q|Geforce RTX 3070 Ti Laptop GPU|GeForce RTX 3070|GeForce RTX 3070 Ti|"
       "GeForce RTX 3060 Ti|GeForce RTX 4070 Max-Q / Mobile|GeForce RTX 4060 Max-Q / Mobile|GeForce RTX 5070 Max-Q / Mobile|"
       "GeForce RTX 5060 Max-Q / Mobile|GeForce RTX 5050 Max-Q / Mobile|GeForce RTX 5060|"
       "RTX 3000 Ada Generation Embedded GPU",
    10: "CMP 50HX|CMP 90HX|GeForce RTX 3080|GeForce RTX 3080 Lite Hash Rate",
    11: "GeForce GTX 1080 Ti",
    12: "TITAN X Pascal|TITAN Xp|TITAN V|GeForce RTX 3060 Lite Hash Rate|GeForce RTX 4080 Max-Q / Mobile|"
        "GeForce RTX 5070 Ti Mobile|RTX 4000 Ada Generation Embedded GPU",
    16: "Quadro GP100|Quadro P5000|Quadro P5000 Mobile|Quadro P5200 Mobile|Tesla P6|Tesla T10|T4G|CMP 100-200|CMP 100-210|"
        "GeForce RTX 3080 Ti Mobile|GeForce RTX 3080 Ti Laptop GPU|GeForce RTX 4080 SUPER|GeForce RTX 4090 Laptop GPU|"
        "GeForce RTX 5080 Max-Q / Mobile",
    24: "Quadro P6000|Tesla P10|PG506-232|L40 CNX|GeForce RTX 5090 Max-Q / Mobile|GeForce RTX 5090 D V2",
    32: "Quadro GV100|Tesla PG500-216|Tesla PG503-216|RTX PRO 4500 Blackwell Server Edition",
    48: "L20",
    80: "H100 CNX",
}  # fmt: skip
BY_PCI_IDS = {name: gib for gib, names in _BY_PCI_IDS.items() for name in names.split("|")}

# By the id, where neither name tells it.
BY_ID = {
    0x1BB3: 8, 0x15F7: 12, 0x15F8: 16, 0x15F9: 16, 0x1DB1: 16, 0x1DB4: 16, 0x1B38: 24, 0x1DB5: 32, 0x1DB6: 32,
    0x1DB8: 32, 0x1DF6: 32, 0x26B8: 24, 0x2337: 64, 0x2338: 96, 0x2339: 94, 0x13F2: 8, 0x13F3: 8, 0x13BD: 8, 0x102D: 12,
    0x20B1: 40, 0x20B8: 80, 0x20B9: 24, 0x2487: 12, 0x2503: 12,
    0x1C8C: 4, 0x1CCC: 4, 0x25A2: 4, 0x25A5: 4, 0x25E2: 4, 0x25E5: 4, 0x25A7: 4,
}  # fmt: skip

# Names, in the brackets of pci.ids, of boards that were sold in several sizes under one id, or of which no list
# tells the size. claimd publishes "not known" for them; the setting nvml asks the board.
SEVERAL = frozenset((
    "GeForce GT 1030", "GeForce GTX 1050 Mobile", "GeForce GTX 1050 Ti Mobile", "GeForce GTX 1060 Mobile",
    "GeForce GTX 1060 Mobile Rev. 2", "GeForce MX150", "GeForce MX230", "GeForce MX250", "GeForce MX330",
    "GeForce MX350", "GeForce MX450", "GeForce MX550", "GeForce MX570", "GeForce MX570 A", "Quadro P620",
    "Quadro T500 Mobile", "Quadro RTX 6000/8000", "Quadro RTX 3000 Mobile Refresh",
    "Quadro P2000 Mobile / DRIVE PX 2 AutoChauffeur", "GeForce RTX 3060", "GeForce RTX 3080 Mobile / Max-Q 8GB/16GB",
    "GeForce RTX 4060 Ti", "GeForce RTX 5060 Ti", "RTX PRO 5000 Blackwell / RTX PRO 5000 72GB Blackwell", "RTX A4000H",
    "P102-100", "P104-100", "P104-101", "P106-090", "P106M", "CMP 170HX", "CMP 100-100", "A100-PG506-207",
    "A100-PG506-217", "H100", "H20 NVL16", "H20B", "H100 GH3", "L30", "L16", "B100", "TS4 / B100", "GB300 MaxQ", "GB300",
    "RTX PRO 6000D Blackwell Workstation Edition", "RTX PRO 6000D Blackwell Max-Q Workstation Edition",
    "DRIVE A100 PROD", "DRIVE P2021",
))  # fmt: skip
SEVERAL_IDS = frozenset(
    (0x1CFA, 0x1CFB)
)  # a Quadro P2000 and P1000 of GP107, of which no list has the size

# What was never sold as a board: chips without a product, samples, reserved ids, and the ids of vGPU profiles.
NOT_SOLD = re.compile(
    r"Engineering Sample|Reserved Dev ID|Initial Dev ?ID|INT SKU|SKU|Skinny Joe|GH100-88K|DGX1-V|GRID A100|RTX TITAN Ada|"
    r"AC AD104|PCIe Faber|PG137|GDDR6X$|Generic-GPU|Desktop Device"
)

# The boards whose memory is GDDR with ECC on when they leave the factory. The check bits are in the same memory,
# which leaves fifteen sixteenths of it: nvidia-smi shows 46068 MiB on an L40S, 23034 on an L4, 15360 on a T4.
INLINE_ECC = frozenset((
    0x1023, 0x1024, 0x102D, 0x17FD, 0x13F2, 0x13F3,  # K40, K80, M40, M60, M6
    0x1B38, 0x1B39, 0x1BB3, 0x1BB4,  # P40, P10, P4, P6
    0x1E35, 0x1E37, 0x1E38, 0x1EB4, 0x1EB8,  # T10, T40, T4G, T4
    0x2235, 0x2236, 0x2237, 0x2238, 0x25B6,  # A40, A10, A10G, A10M, A2 and A16
    0x26B3, 0x26B5, 0x26B7, 0x26B8, 0x26B9, 0x26BA, 0x26F5, 0x27B6, 0x27B7, 0x27B8,  # RTX 5880 Ada, L40 to L4
))  # fmt: skip


def size_in_name(name: str) -> int | None:
    """Returns the size that a name says, in GiB; None unless it says exactly one."""
    sizes = {int(size) for size in re.findall(r"\b(\d+) ?GB\b", name)}
    return sizes.pop() if len(sizes) == 1 and " / " not in name.partition("GB")[0] else None


def size_by_id(device: int, product: str) -> int | None:
    """Returns the GiB on all boards with an id, whose name in pci.ids is `product`."""
    if device in SEVERAL_IDS:
        return None
    return BY_ID.get(device) or size_in_name(product) or BY_PCI_IDS.get(product)


def is_not_known(device: int, product: str) -> bool:
    """Returns True for an id whose boards have several sizes, or that was never sold as a board."""
    is_several = device in SEVERAL_IDS or product in SEVERAL
    return is_several or NOT_SOLD.search(product) is not None


def usable(device: int, gib: int | None) -> str:
    """Returns what the table has about a board of this size: the GiB that a driver can use."""
    if not gib:
        return ""
    return f"{gib * 15 / 16 if device in INLINE_ECC else gib:g}"
