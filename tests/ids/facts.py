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
    "GB110": ("Blackwell", "sm_103"), "GB112": ("Blackwell", "sm_103"), "GB120": ("Blackwell", ""),
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
    "Wildcat Lake": "WCL", "Nova Lake": "NVLS", "Ponte Vecchio": "PVC",
}  # fmt: skip

INTEL_IDS = {
    0x0BD4: 128, 0x0BD5: 128, 0x0BD6: 128, 0x0BD7: 96, 0x0BD8: 96, 0x0BD9: 48, 0x0BDA: 48, 0x56A1: 8, 0x56A2: 8,
    0x56A5: 6, 0x56A6: 4, 0x56C0: 16, 0x56C1: 6, 0xE20B: 12, 0xE20C: 10, 0xE211: 24, 0xE212: 16, 0xE222: 32, 0xE223: 32,
}  # fmt: skip

# Ids that pci.ids does not have, as (vendor, id, name): virtual functions and chips that amdgpu.ids names.
MORE_DEVICES = (
    ("1002", "74a8", "Aqua Vanjaram [Instinct MI308X HF]"),
    ("1002", "74b6", "Aqua Vanjaram [Instinct MI308X VF]"),
    ("1002", "75b0", "Aqua Vanjaram [Instinct MI350X VF]"),
    ("1002", "75b3", "Aqua Vanjaram [Instinct MI355X VF]"),
)  # fmt: skip
