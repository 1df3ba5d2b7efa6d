"""Judgements about Xid errors: how severe each of NVIDIA's actions is, and the meanings in our words."""

from __future__ import annotations

from typing import NamedTuple

FAILED, DEGRADED, NOTE = "failed", "degraded", "note"


class Judgement(NamedTuple):
    """The severity of an Xid, and what a person should do."""

    severity: str
    advice: str


_RESET = Judgement(FAILED, "reset the GPU")
_NOTHING = Judgement(NOTE, "no action is needed")
_WATCH = Judgement(DEGRADED, "watch the GPU, and ask its vendor for support if it recurs")

# By NVIDIA's immediate action. An Xid after which the GPU works on is a note, also if the hardware
# is at fault.
BY_ACTION = {
    "": _NOTHING,
    "CHECK_MECHANICALS": Judgement(DEGRADED, "check the power cables of the board"),
    "CHECK_UVM": Judgement(DEGRADED, "look for other errors of the GPU in the kernel's log"),
    "CONTACT_SUPPORT": _WATCH,
    "IGNORE": _NOTHING,
    "RESET_GPU": _RESET,
    "RESTART_APP": Judgement(NOTE, "restart the program"),
    "RESTART_BM": Judgement(FAILED, "reboot the node"),
    "RESTART_VM": Judgement(FAILED, "restart the virtual machine, or reboot the node"),
    "UPDATE_SWFW": Judgement(DEGRADED, "update the driver and the firmware"),
    "WORKFLOW_NVLINK5_ERR": Judgement(DEGRADED, "reset the GPU if the error recurs"),
    "WORKFLOW_NVLINK_ERR": Judgement(FAILED, "reset the GPU, and check its NVLinks if it recurs"),
    "WORKFLOW_XID_45": Judgement(NOTE, "look for the error before it"),
    "WORKFLOW_XID_48": Judgement(FAILED, "reset the GPU, and have it examined if it recurs"),
    "XID_154": Judgement(NOTE, "no action is needed"),
}

# Where we differ from the action, because the catalog has no action, or because another document
# of NVIDIA or the driver's source says more.
EXCEPTIONS = {
    61: (_RESET, "NVIDIA's guide for older GPUs asks for a reset"),
    92: (_WATCH, "the rate of errors is high"),
    164: (_WATCH, "the part is nearly worn out"),
    165: (_WATCH, "the part is worn out"),
    167: (Judgement(FAILED, "reboot the node"), "the GPU does not answer over PCIe"),
    168: (_WATCH, "the GPU has less memory than it should"),
    169: (_RESET, "a controller has halted, as in Xid 62"),
    171: (_RESET, "it accompanies Xid 48"),
    172: (_RESET, "it accompanies Xid 48"),
    173: (Judgement(FAILED, "reboot the node"), "the link to the processor is down"),
    175: (_WATCH, "the driver reports it when the GPU's own processor does not answer"),
    176: (_WATCH, "the rate of errors is high"),
}

# Errors that stop or endanger all MIG instances, whichever of them the line names.
OF_WHOLE_GPU = frozenset(
    {
        *(54, 61, 62, 64, 74, 79, 95, 110, 119, 120, 121, 136, 140, 143),
        *range(144, 152),
        *(154, 155, 158, *range(162, 171), 173, 175, 176),
    }
)

_COPY = "a copy engine had an error"
_DECODER = "a video decoder had an error"
_DISPLAY = "the display engine had an error"
_ENCODER = "a video encoder had an error"
_FIFO = "the GPU got an invalid stream of commands"
_GRAPHICS = "the graphics engine had an error"
_JPEG = "a JPEG engine had an error"
_NVLINK = "an NVLink had an error"
_VIDEO = "a video engine had an error"

# The meanings in our own words.
MEANINGS = {
    **dict.fromkeys(range(1, 8), _FIFO),
    8: "a program's work took too long and was ended",
    **dict.fromkeys((9, 10, 12), _GRAPHICS),
    11: _FIFO,
    13: "a program made the graphics engine fail, often by an access outside of an array",
    14: "a program injected a test error",
    **dict.fromkeys((15, 16, 19), _DISPLAY),
    17: "the driver got an invalid parameter",
    18: "the GPU could not write to the memory of the host",
    **dict.fromkeys((20, 21, 22, 27, 28, 29), _VIDEO),
    23: "the driver began to log errors",
    24: "a semaphore of the GPU was not released in time",
    25: _FIFO,
    26: "the GPU waited too long for its memory",
    30: "the GPU accessed a wrong address",
    31: "a program accessed a wrong address of the GPU's memory",
    32: _FIFO,
    33: "the security engine had an error",
    **dict.fromkeys((34, 35, 36, 42, 60), _VIDEO),
    37: "the firmware got an unknown command",
    38: "the firmware of the graphics engine did not answer in time",
    **dict.fromkeys((39, 40, 41, 70, 71, 72, 75, 76, 77, 85), _COPY),
    **dict.fromkeys(range(126, 136), _COPY),
    43: "the driver ended a program's work after an error of that program",
    44: "the graphics engine had an error while it changed between programs",
    45: "the driver removed a program's work, often after an earlier error or at its end",
    46: "the GPU has stopped processing",
    **dict.fromkeys((47, 65, 73, 142), _ENCODER),
    48: "the GPU's memory had an error that could not be corrected",
    49: "the level of noise reduction was set by a setting",
    50: "the level of noise reduction changed after an error",
    51: "a test under load failed",
    52: "the GPU changed its level because it became hot",
    53: "the GPU runs slower because it is hot",
    54: "the board's auxiliary power is not connected",
    55: "a temperature could not be read",
    56: _DISPLAY,
    57: "the interface to the GPU's memory could not be set up",
    58: "the interface to the GPU's memory is unstable",
    59: "the GPU's power controller had an error",
    61: "the GPU's power controller has stopped",
    62: "the GPU's power controller has halted",
    63: "a bad part of the memory was retired or remapped",
    64: "a bad part of the memory could not be retired or remapped",
    66: "the driver accessed a register that it must not access",
    67: "the driver made an access that was refused",
    **dict.fromkeys((68, 83, 84, 88, 89, 96, 97, 98), _DECODER),
    69: "a program gave the graphics engine an invalid command",
    74: _NVLINK,
    78: "a virtual GPU could not be started",
    79: "the GPU has fallen off the bus",
    80: "commands arrived damaged at the GPU",
    81: "the VGA part of the GPU had an error",
    **dict.fromkeys((82, *range(99, 106)), _JPEG),
    **dict.fromkeys((86, 139), "an optical flow engine had an error"),
    87: "the driver reported telemetry",
    90: "a cache of the GPU's memory had an error",
    91: "NVIDIA has reserved this number",
    92: "the GPU's memory has many single-bit errors",
    93: "the limit of writes to the board's InfoROM was reached",
    94: "an error of the memory ended one program and did not reach others",
    95: "an error of the memory may have reached several programs",
    106: "the management controller sent a test message",
    107: "the management controller sent a silent test message",
    108: "an address of another GPU could not be translated",
    109: "the GPU could not change between programs in time",
    110: "the GPU reported a security fault",
    111: "the graphics engine got invalid state",
    **dict.fromkeys((112, *range(114, 119)), _DISPLAY),
    113: "the link to a display could not be trained",
    119: "the GPU's own processor (GSP) does not answer",
    120: "the GPU's own processor (GSP) has failed",
    121: "the link to the processor (C2C) had corrected errors",
    122: "the board's flash memory could not be read",
    123: "the board's flash memory could not be written",
    124: "the board's flash memory could not be erased",
    125: "the file system of the board's InfoROM has an error",
    136: "an NVLink could not be trained",
    137: "a program accessed a wrong address of another GPU over NVLink",
    **dict.fromkeys((138, 152, 153), "the deep learning accelerator had an error"),
    140: "an error of the memory escaped the driver's handling",
    141: "CUDA's fast path had an error",
    143: "the GPU could not be initialized",
    **dict.fromkeys(range(144, 151), _NVLINK),
    151: "the keys of confidential computing could not be changed",
    154: "the driver says what the GPU needs",
    155: "an NVLink went down on purpose",
    156: "a bad part of the GPU is to be retired",
    157: "a bad part of the GPU could not be retired",
    158: "the GPU did not answer in time, and this is fatal",
    159: "a transfer between processor and GPU had an error",
    160: "a bad memory channel is to be retired",
    161: "a bad memory channel could not be retired",
    162: "the power smoothing circuit is on again",
    163: "the power smoothing circuit is off",
    164: "the power smoothing circuit will soon be worn out",
    165: "the power smoothing circuit is worn out",
    166: "an NVLink got traffic before it was set up for encryption",
    167: "the GPU did not answer over PCIe in time, and this is fatal",
    168: "protected memory has errors, so the GPU has less memory",
    169: "the GPU's security controller has halted",
    170: "an NVLink in confidential computing raised an interrupt",
    171: "the GPU's DRAM had an error that could not be corrected",
    172: "the GPU's SRAM had an error that could not be corrected",
    173: "the link to the processor (C2C) has failed",
    174: "the driver ended a program silently",
    175: "the GPU's memory subsystem had an error",
    176: "PCIe had too many corrected errors",
}
