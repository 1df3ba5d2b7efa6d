"""What the lists do not have: which chip is of which generation, and what memory boards have.

Facts that makers publish, by the names that they have in the lists.
"""

from __future__ import annotations

# Names of chips as they begin in pci.ids; the generation, what compilers are told, and whether it
# is a part of a processor. The longest that fits counts.
NVIDIA_CHIPS = {
    "GK10": ("Kepler", "sm_30"), "GK11": ("Kepler", "sm_35"), "GK18": ("Kepler", "sm_35"),
    "GK20": ("Kepler", "sm_35"), "GK20A": ("Kepler", "sm_32"), "GK21": ("Kepler", "sm_37"),
    "GM10": ("Maxwell", "sm_50"), "GM20": ("Maxwell", "sm_52"), "GM20B": ("Maxwell", "sm_53"),
    "GP100": ("Pascal", "sm_60"), "GP10": ("Pascal", "sm_61"), "GP10B": ("Pascal", "sm_62"),
    "GV100": ("Volta", "sm_70"), "GV11B": ("Volta", "sm_72"),
    "TU10": ("Turing", "sm_75"), "TU11": ("Turing", "sm_75"),
    "GA100": ("Ampere", "sm_80"), "GA10": ("Ampere", "sm_86"), "GA10B": ("Ampere", "sm_87"),
    "AD10": ("Ada Lovelace", "sm_89"), "GH100": ("Hopper", "sm_90"),
    "GB100": ("Blackwell", "sm_100"), "GB102": ("Blackwell", "sm_100"), "GB10B": ("Blackwell", "sm_110"),
    "GB110": ("Blackwell", "sm_103"), "GB112": ("Blackwell", "sm_103"),
    "GR10": ("Rubin", ""), "GB20": ("Blackwell", "sm_120"), "GB20B": ("Blackwell", "sm_121"),
}  # fmt: skip
# All of these are what their machine is built around, as is one of AMD's, below.
NVIDIA_INTEGRATED = ("GK20A", "GM20B", "GP10B", "GV11B", "GA10B", "GB10B", "GB20B")

# Families of AMD's, with the names of the chips; then those that are a part of a processor.
AMD_CHIPS = {
    "GCN": (
        "Cape Verde", "Pitcairn", "Tahiti", "Oland", "Hainan", "Mars", "Sun", "Opal", "Jet", "Exo", "Litho",
        "Weston", "Heathrow", "Chelsea", "Venus", "Tropo", "Trinidad", "Curacao", "Wimbledon", "Neptune",
        "New Zealand", "Malta", "Aruba", "Bonaire", "Hawaii", "Vesuvius", "Saturn", "Tobago", "Strato",
        "Emerald", "Grenada", "Tonga", "Fiji", "Topaz", "Iceland", "Antigua", "Amethyst", "Meso", "Banks",
        "Capsaicin", "Lombok", "Robson", "Kaveri", "Kabini", "Temash", "Mullins", "Beema", "Carrizo", "Wani", "Stoney",
        "Spectre", "Spooky", "Scrapper", "Kryptos", "Liverpool", "Scorpio",
    ),
    "Polaris": ("Polaris", "Ellesmere", "Baffin", "Lexa"),
    "Vega": (
        "Vega", "Raven", "Picasso", "Renoir", "Lucienne", "Cezanne", "Barcelo", "Dali", "Pollock", "Fenghuang",
    ),
    "CDNA": ("Arcturus",), "CDNA 2": ("Aldebaran",), "CDNA 3": ("Aqua Vanjaram",), "CDNA 4": ("Aqua Vanjaram [Instinct MI35",),
    "RDNA": ("Navi 10", "Navi 12", "Navi 14", "Cyan Skillfish"),
    "RDNA 2": (
        "Navi 21", "Navi 22", "Navi 23", "Navi 24", "VanGogh", "Rembrandt", "Mendocino", "Raphael", "Granite Ridge",
        "Sephiroth", "Mero", "Aerith",
    ),
    "RDNA 3": ("Navi 31", "Navi 32", "Navi 33", "Phoenix", "Hawk", "HawkPoint"),
    "RDNA 3.5": ("Strix", "Krackan", "Gorgon", "Medusa", "Soundwave"),
    "RDNA 4": ("Navi 44", "Navi 48"),
}  # fmt: skip
AMD_INTEGRATED = (
    "Kaveri", "Kabini", "Temash", "Mullins", "Beema", "Carrizo", "Wani", "Stoney", "Spectre", "Spooky",
    "Scrapper", "Kryptos", "Liverpool", "Scorpio", "Raven", "Picasso", "Renoir", "Lucienne", "Cezanne", "Barcelo",
    "Dali", "Pollock", "Fenghuang", "Cyan Skillfish", "VanGogh", "Rembrandt", "Mendocino", "Raphael",
    "Granite Ridge", "Sephiroth", "Mero", "Aerith", "Phoenix", "Hawk", "HawkPoint", "Strix", "Krackan", "Gorgon",
    "Medusa", "Soundwave",
)  # fmt: skip
AMD_PACKAGES = ("Aqua Vanjaram [Instinct MI300A",)

# By the groups of the kernel's header: the family, the architecture, whether it is integrated.
_XE_LP, _HD = "UHD and Iris Xe Graphics", "HD, UHD and Iris Graphics"
INTEL_PLATFORMS = {
    "HSW": (_HD, "gen7.5", True), "VLV": (_HD, "gen7", True), "BDW": (_HD, "gen8", True), "CHV": (_HD, "gen8", True),
    "SKL": (_HD, "gen9", True), "BXT": (_HD, "gen9", True), "GLK": (_HD, "gen9.5", True), "KBL": (_HD, "gen9.5", True),
    "AML": (_HD, "gen9.5", True), "CFL": (_HD, "gen9.5", True), "WHL": (_HD, "gen9.5", True), "CML": (_HD, "gen9.5", True),
    "ICL": (_HD, "gen11", True), "EHL": (_HD, "gen11", True), "JSL": (_HD, "gen11", True),
    "TGL": (_XE_LP, "xe-lp", True), "RKL": (_XE_LP, "xe-lp", True), "ADLS": (_XE_LP, "xe-lp", True),
    "ADLP": (_XE_LP, "xe-lp", True), "ADLN": (_XE_LP, "xe-lp", True), "RPLS": (_XE_LP, "xe-lp", True),
    "RPLU": (_XE_LP, "xe-lp", True), "RPLP": (_XE_LP, "xe-lp", True), "DG1": ("Iris Xe Max", "xe-lp", False),
    "DG2": ("Arc A", "xe-hpg", False), "ATS": ("Data Center GPU Flex", "xe-hpg", False),
    "PVC": ("Data Center GPU Max", "xe-hpc", False), "MTL": ("Meteor Lake", "xe-lpg", True),
    "ARL": ("Arrow Lake", "xe-lpg", True), "LNL": ("Lunar Lake", "xe2-lpg", True),
    "BMG": ("Arc B", "xe2-hpg", False), "PTL": ("Panther Lake", "xe3-lpg", True),
    "WCL": ("Wildcat Lake", "xe3-lpg", True), "NVLS": ("Nova Lake", "xe3-lpg", True),
    "CRI": ("Crescent Island", "xe3p-xpc", False),
}  # fmt: skip

# The same by what names in pci.ids begin with, for ids that the header does not have.
INTEL_NAMES = {
    "AlderLake": "ADLP", "Alder Lake": "ADLP", "Raptor Lake": "RPLP", "Lakefield": "ICL", "Panther Lake": "PTL",
    "DG2": "DG2", "ACMP": "DG2", "Battlemage": "BMG", "Lunar Lake": "LNL", "Meteor Lake": "MTL", "Arrow Lake": "ARL",
    "Wildcat Lake": "WCL", "Nova Lake": "NVLS",
}  # fmt: skip

# GiB of memory by the names that NVIDIA's driver has, without NVIDIA before them: as NVIDIA's guide to MIG has it,
# which is what nvidia-smi shows, rounded up (B200 183359 MiB, GB200 189471, H200 and H20-3e 143771; B300 275040 and
# GB300 284208, of which the guide has no size).
_NVIDIA_NAMES = {
    2: "T400|Quadro P600 2GB|Tesla K520M",
    4: "T1000|T600|T400 4GB|T400E|T600 Laptop GPU|T550 Laptop GPU|Quadro T2000|Quadro T2000 with Max-Q Design|Quadro T1000|"
       "Quadro T1000 with Max-Q Design|T1200 Laptop GPU|DGX Display|RTX A400|RTX A2000 Laptop GPU|RTX A1000 Laptop GPU|"
       "RTX A500 Laptop GPU|RTX A1000 Embedded GPU|RTX A500 Embedded GPU|RTX 500 Ada Generation Laptop GPU|Tesla M4",
    6: "Quadro RTX 3000|Quadro RTX 3000 with Max-Q Design|RTX A3000 Laptop GPU|RTX A2000|RTX A1000 6GB Laptop GPU|"
       "RTX 1000 Ada Generation Laptop GPU|RTX PRO 500 Blackwell Generation Laptop GPU|RTX PRO 500 Blackwell Embedded GPU",
    8: "Quadro RTX 4000|Quadro RTX 4000 with Max-Q Design|T1000 8GB|RTX A4000H|RTX A4000 Laptop GPU|RTX A1000|"
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
    48: "Quadro RTX 8000|RTX A6000|A40|RTX 6000 Ada Generation|RTX 5880 Ada Generation|L40|L40S|L40G|L20|RTX PRO 5000 Blackwell",
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
NVIDIA_NAMES = {name: gib for gib, names in _NVIDIA_NAMES.items() for name in names.split("|")}

# GiB by the id, where that leaves no choice, of boards that the list of names does not have.
NVIDIA_IDS = {
    0x1BB3: 8, 0x15F7: 12, 0x15F8: 16, 0x15F9: 16, 0x1DB1: 16, 0x1DB4: 16, 0x1B38: 24, 0x1DB5: 32, 0x1DB6: 32,
    0x1DB8: 32, 0x1DF6: 32, 0x26B8: 24, 0x2337: 64, 0x2338: 96, 0x2339: 94, 0x13F2: 8, 0x13F3: 8, 0x13BD: 8, 0x102D: 12,
    0x20B1: 40, 0x20B8: 80, 0x20B9: 24,
}  # fmt: skip
INTEL_IDS = {
    0x0BD4: 128, 0x0BD5: 128, 0x0BD6: 128, 0x0BD7: 96, 0x0BD8: 96, 0x0BD9: 48, 0x0BDA: 48, 0x56A1: 8, 0x56A2: 8,
    0x56A5: 6, 0x56A6: 4, 0x56C0: 16, 0x56C1: 6, 0xE20B: 12, 0xE20C: 10, 0xE211: 24, 0xE212: 16, 0xE222: 32, 0xE223: 32,
}  # fmt: skip
