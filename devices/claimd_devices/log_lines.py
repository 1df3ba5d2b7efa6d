"""Understands lines of the kernel's log that report about the health of a GPU.

`kmsg` reads the lines. The drivers of all vendors write them; Xids are NVIDIA's. `health` decides
how long an event counts.

The expressions match from the first character of a line on, because later parts may contain text
that any program chose, such as the name of a program that has crashed.
"""

from __future__ import annotations

import re
from dataclasses import replace

from .health import (
    BOUND,
    DEGRADED,
    ERROR_WINDOW,
    FAILED,
    KERNEL_LOG,
    NOTE,
    UNINITIALIZED,
    Event,
)
from .kmsg import Line
from .patterns import Pattern

# What nobody sees on a node whose log cannot be read.
UNSEEN = "Xid and SXid errors, resets that failed and hardware errors are not seen"

_SLOT = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}"

_QUOTED = 60  # the most characters of a line that a sentence quotes

# NVIDIA's driver names the MIG instance if one is to blame: the GPU instance, and perhaps the
# compute instance in it. The program follows if it is known. Its name may be any text of 15 bytes;
# a name with a comma is skipped in part.
_XID = Pattern(
    rf"NVRM: Xid \((?:PCI:)?({_SLOT})(?:\.[0-7])?"
    r"(?: GPU-I:([0-9]{1,3})(?: GPU-CI:[0-9]{1,3})?)?\): ([0-9]{1,6})(?:$|,)"
    r"(?: pid=[^ ,]{1,16}, name=[^,]{1,64},)? ?",
    re.I,
)

# From r570 on the driver says itself what a GPU needs. `None` means that nothing is needed any
# more.
_RECOVERY = Pattern(
    r"GPU recovery action changed "
    r"from 0x[0-9a-f]{1,8} \([A-Za-z0-9 ]{1,40}\) to 0x[0-9a-f]{1,8} \(([A-Za-z0-9 ]{1,40})\)"
)
_RECOVERY_CODE = 154
_NO_RECOVERY = "None"

# The GPU works, but other GPUs must not reach its memory.
_MILD_RECOVERIES = ("Drain P2P", "Recover IMEX Domain")

# An error of NVLink 5 says how severe it is, after the name of the part that reports it. The
# expression is longer than the name of a program may be (15 bytes), so no program can imitate it.
_NVLINK_CODES = range(144, 151)
_IS_FATAL = Pattern(r"[A-Za-z0-9_/]+ +Fatal +XC[0-9]+ i[0-9]+ Link")

# What an NVIDIA driver says about a GPU, after the GPU's address.
_OF_NVIDIA_GPU = Pattern(rf"NVRM: GPU (?:at )?(?:PCI:)?({_SLOT}\.[0-7])(?: has|:) ")
_NVIDIA_INIT_FAILED = Pattern(
    r"RmInitAdapter failed!|rm_init_adapter failed|rm_init_private_state\(\) failed"
    r"|Failed to map regs registers|Failed to copy vbios to system memory|request_irq\(\) failed"
    r"|No interrupts of any type are available|nv_linux_init_open_q\(\) failed"
    r"|GPU does not have the necessary power cables connected"
)
_FALLEN_OFF = Pattern(r"(?:GPU has )?fallen off the bus|GPU is lost, skipping")
_CODE_OF_FALLEN_OFF = 79

# One record of /dev/kmsg with several lines. The kernel escapes the line ends in it.
_BREAK = r"(?:\\x0aNVRM:)?"
_FALLEN_OFF_AT_START = Pattern(
    rf"NVRM: The NVIDIA GPU ({_SLOT}\.[0-7])(?:{_BREAK} \(PCI ID: [0-9a-f]{{4}}:[0-9a-f]{{4}}\))?"
    rf"(?:{_BREAK}(?: installed in this system)? has)?{_BREAK} fallen off the bus"
)
_BAD_REGION = Pattern(
    r"NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\\x0a"
    rf"NVRM: BAR[0-9] is [^(\\]{{1,60}}\(PCI:({_SLOT}\.[0-7])\)"
)

# The GPU was unplugged, or the kernel gave it up, while a program used it.
_REMOVED_IN_USE = Pattern(
    rf"NVRM: (?:Attempting to remove|Failed removal of) device ({_SLOT}\.[0-7])(?:!| with non-zero usage)"
)
_START_FAILED = Pattern(rf"NVRM: Device start failed for ({_SLOT}\.[0-7]) ")

# The driver says this when its processor has not answered many times.
_GSP_IS_SILENT = Pattern(
    rf"NVRM: Rate limiting GSP RPC error prints for GPU at PCI:({_SLOT}) \([^)]{{1,60}}\)\. +"
    r"The GPU likely needs to be reset"
)
_CODE_OF_GSP_TIMEOUT = 119

# NVSwitches have drivers and addresses of their own. Severity 1 is the driver's number for fatal.
_SXID = Pattern(
    rf"nvidia-nvswitch[0-9]{{1,3}}: SXid \(PCI:({_SLOT}\.[0-7])\): ([0-9]{{1,6}}), (Fatal,|Severity 1 )?"
)

# A line about a device begins with its driver and its address. The words follow.
_OF_DEVICE = Pattern(
    rf"([a-z0-9_-]{{1,32}}) ({_SLOT}\.[0-7]): +(?:amdgpu: ){{0,2}}(?:\{{[0-9]{{1,20}}\}} ?)?"
    r"(?:\[drm(?::[a-z0-9_.]{1,64}(?: \[[a-z0-9_]{1,32}\])?)?\] )?(?:\*ERROR\* )?"
)
_WEDGED = Pattern(r"device wedged, needs recovery$")
_ENABLED = Pattern(r"enabling device \([0-9a-f]{4} -> [0-9a-f]{4}\)")
_INITIALIZED = Pattern(
    rf"(?:[a-z0-9_-]+ {_SLOT}\.[0-7]: )?\[drm\] Initialized \S+ [0-9.]+ (?:\S+ )?"
    rf"for ({_SLOT}\.[0-7]) on"
)

# Its registers have no place in the node's memory, so no driver can use it.
_CANNOT_ENABLE = Pattern(
    r"(?:BAR|ROM|VF BAR)[ 0-9]{0,4} ?\[[^]]{1,60}\]: not (?:claimed|assigned); can't enable device"
    r"|can't enable device: BAR [0-9]{1,2} \[[^]]{1,60}\] not (?:claimed|assigned)"
    r"|device not available \(can't reserve "
)

# A driver that cannot be bound to its GPU. ENODEV (19) means that the driver does not want it.
_PROBE_FAILED = Pattern(r"probe with driver ([a-z0-9_-]{1,32}) failed with error -(?!19$)[0-9]")
_PROBE_OF_FAILED = Pattern(
    rf"([a-z0-9_-]{{1,32}}): probe of ({_SLOT}\.[0-7]) failed with error -(?!19$)[0-9]"
)

# Older kernels name no driver here.
_RESUME_FAILED = Pattern(
    rf"PM: Device ({_SLOT}\.[0-7]) failed to (?:resume|restore|thaw)(?: [a-z]{{1,16}}){{0,2}}: error -[0-9]"
)

# What the kernel says about any device on the PCI bus.
_PCI_LOST = Pattern(
    r"Unable to change power state from \S{1,8} to \S{1,8}, device inaccessible"
    r"|can't change power state from \S{1,8} to \S{1,8} \(config space inaccessible\)"
    r"|[Rr]efused to change power state, currently in D3|[Uu]nknown header type 7f"
    r"|\[[0-9a-f]{4}:[0-9a-f]{4}\] type 7f class 0xffffff"
)
_PCI_RESET_FAILED = Pattern(
    r"not ready [0-9]{1,9}ms after [A-Za-z ]{1,40}; giving up"
    r"|AMD_[A-Z0-9]{1,16}: failed to reset device|Failed to return from FLR"
    r"|PM: failed to (?:resume|restore|thaw)(?: [a-z]{1,16}){0,2}: error -[0-9]"
    r"|PM: [a-z_]{1,32}\(\): [a-z]{2,12}_[a-z]{2,8}_(?:resume|restore|thaw)(?:_[a-z]{1,8})?\+0x[0-9a-f]{1,6}"
    r"/0x[0-9a-f]{1,6}(?: \[[a-z0-9_]{1,32}\])? returns -[0-9]"
)
_PCI_ERROR = Pattern(r"(?:AER: )?PCIe Bus Error: severity=Uncorrect(?:ed|able) \((Non-)?Fatal\)")

# A port names the device that reported the error to it.
_PCI_ERROR_AT_PORT = Pattern(
    rf"pcieport ({_SLOT}\.[0-7]): AER: (?:Multiple )?Uncorrect(?:ed|able) \((Non-)?Fatal\) error "
    rf"(?:message )?received(?::| from) ({_SLOT}\.[0-7])$"
)

# A port that has cut off the device below it, after an error of any kind.
_CUT_OFF_BY_PORT = Pattern(
    rf"pcieport ({_SLOT}\.[0-7]): DPC: containment event, status:0x([0-9a-f]{{1,4}})(?:[,:] "
    rf"ERR_(?:NON)?FATAL received from ({_SLOT}\.[0-7])| source:0x([0-9a-f]{{4}}))$"
)
_TRIGGER = 0b110
_TRIGGERS_OF_DEVICE = (0b010, 0b100)  # ERR_NONFATAL, ERR_FATAL

_AMD_RESET = Pattern(r"GPU reset\([0-9]{1,9}\) succeeded!|PCIe error recovery succeeded")
_AMD_RESET_FAILED = Pattern(
    r"GPU reset\([0-9]{1,9}\) failed"
    r"|GPU reset end with ret = -[0-9]"
    r"|GPU (?:smu |psp )?mode[0-9] reset failed"
    r"|GPU pre asic reset failed with err, -[0-9]"
    r"|GPU Recovery Failed: -[0-9]"
    r"|ASIC reset failed with error, -[0-9]"
    r"|GPU reset retry is beyond the retry limit|asic atom init failed|Failed to exit BACO state"
    r"|Failed to mode[0-9]? ?reset!|failed to send mode[0-9] (?:reset|message)"
    r"|PCIe error recovery failed|(?:GFXHUB gart reenable|GFX ucode load) failed after reset"
    r"|Failed to get response from firmware after reset"
    r"|(?:resume|late_init) of IP block <[a-z0-9_]{1,32}> failed -[0-9]"
    r"|amdgpu_device_ip_resume failed"
    r"|amdgpu asic init failed"
    r"|Mode[0-9] reset failed!"
    r"|device lost from bus!|pci_channel_io_perm_failure: state"
)
_AMD_INIT_FAILED = Pattern(
    r"Fatal error during GPU init"
    r"|amdgpu_(?:device_(?:ip_(?:late_)?|wb_)|discovery_|fence_driver_sw_|mem_scratch_|ras_late_)init failed"
    r"|(?:early|sw|hw)_init of IP block <[a-z0-9_]{1,32}> failed -[0-9]"
    r"|Failed to alloc msi vectors|amdgpu_init failed|[A-Z]{2} IP initialize failed"
    r"|SME is not compatible with |failed to init sos firmware"
    r"|Failed to load gpu_info firmware |Failed to (?:get|validate) gpu_info firmware "
    r"|asic reset on init failed|gpu post error!|VF exclusive mode timeout"
    r"|failed to read ip discovery binary|(?:get )?invalid ip discovery "
    r"|(?:fetch mem range failed, )?ip discovery uninitialized"
    r"|K[CG]Q enable failed|failed to load MES (?:kiq )?fw|Failed to (?:start rlc autoload|load toc)"
    r"|\(-[0-9]{1,4}\) failed to wait rlc autoload complete|rlc autoload: gc ucode autoload timeout"
    r"|init imu: IMU start timeout|Failed to wait for (?:sOS|trust OS) ready for ring creation"
    r"|(?:Send long|send) training msg failed|Failed to load [A-Za-z0-9]{2,12} firmware!"
    r"|fail to (?:initialize|request/validate) [a-z0-9]{2,12} microcode"
    r"|Failed to add [A-Za-z0-9 /]{2,16} ip block\(|invalid (?:gc|mall|vcn|harvest) [a-z ]{0,12}table "
    r"|RAS records:[0-9]{1,9} exceeds? threshold:[0-9]{1,9}, GPU will not be initialized"
    r"|Failed to create scheduler on ring |failed initializing fences \(-|IB initialization failed"
    r"|Unable to locate a BIOS ROM|Failed to process memory training!"
    r"|PSP (?:create ring|firmware loading|resume|(?:ring|tmr) init|load [A-Za-z_ ]{1,20}) failed"
    r"|Doesn't get READY_TO_ACCESS_GPU from pf, give up"
    r"|socket: [0-9]{1,3}, aid: [0-9]{1,3},(?: hbm: [0-9]{1,3},)?(?: fw_status: 0x[0-9a-f]{1,16},)? "
    r"(?:[a-z ]{1,40} failed|data abort exception|Boot Controller Generic Error)"
)
# While a reset begins, amdgpu tests the ring that stops all others (KIQ). The test fails whenever a
# program has hung the GPU. So it says nothing; the lines after it say whether the reset failed.
_AMD_HANG = Pattern(
    r"The cp might be in an unrecoverable state|MES might be in unrecoverable state"
    r"|HIQ MQD's queue_doorbell_id0 is not 0, Queue preemption time out|GPU recovery disabled"
    r"|ring (?!(?:mes_)?kiq_)[a-z0-9_.]{1,32} test failed \(-[0-9]|ib ring test failed \(-[0-9]"
    r"|IB test failed on [a-z0-9_.]{1,32} \(-[0-9]|MES ring buffer is full|atombios stuck "
)

# The controller of power and clocks (SMU). Other messages of it are about single requests.
_AMD_SMU_HANG = Pattern(
    r"SMU: I'm not done with your (?:previous )?command|SMU: response:0xFFFFFFFF"
    r"|Msg issuing pre-check failed(?:\(0x[0-9a-f]{1,8}\))? and SMU may be not in the right state"
    r"|message: +[A-Za-z0-9_]{1,40} \([0-9]{1,4}\)\s+param: 0x[0-9a-f]{8} is timeout \(no response\)"
    r"|Failed to send message 0x[0-9a-f]{1,8}, response 0x(?:0|f{8})$|SMU is in hanged state"
    r"|Failed to (?:enable requested|retrieve supported|set allowed) dpm features|Failed to setup smc hw"
    r"|smu reset failed, ret = -[0-9]|SMU load firmware failed|Run(?:Btc|DcBtc|AfllBtc) failed"
    r"|Failed system features control|Load microcode failed|Attempt to override pcie params failed"
    r"|Failed to (?:setup pptable|transfer pptable to SMC|set driver allowed features mask)"
    r"|Failed to (?:setup default dpm clock tables|init max sustainable clocks|enable gfx imu)"
    r"|Failed to (?:sw init smc table|register smc irq handler|get VBIOS boot clock values)"
    r"|Failed to (?:Set[A-Za-z]{1,16}DramAddr|init smc tables|start smc engine|post smu init)"
    r"|SMC (?:engine )?is not (?:correctly up|ready)"
)
_AMD_UNCORRECTED = Pattern(
    r"(?:socket: [0-9]{1,3},? )?(?:(?:die|aid): [0-9]{1,3},? )?"
    r"([1-9][0-9]{0,18}) (?:new )?uncorrectable hardware errors? detected"
    r"|uncorrectable hardware error ?\("
    r"|RAS Intr triggered, device disabled|RAS controller interrupt triggered by NBIF error"
    r"|poison is consumed by client [0-9]{1,5}, kick off gpu reset flow"
    r"|RAS poison consumption, fall back to gpu reset flow"
    r"|GPU reset for [a-z0-9_]{1,16} RAS poison consumption is issued"
)

_COUNT_OF_SLEEPING = 0xFFFF

# The GPU or the whole node is shut down if the temperature stays critical (CTF).
_AMD_HOT = Pattern(
    r"ERROR: (?:(GPU HW Critical Temperature Fault|System is going to shutdown due to GPU)"
    r"|GPU over temperature range)"
)
_AMD_BAD_PAGES = Pattern(
    r"RAS records:[0-9]{1,9} exceeds? |Saved bad pages [0-9]{1,9} reaches threshold value"
)

# A line about one part (GT) of an Intel GPU names it first. The expressions below match what follows.
_OF_GT = re.compile(r"(?:Tile[0-9]: )?(?:[Gg][Tt][0-9]: )?")

# Some lines of i915 begin with the name of a program (15 bytes at most) and its number in brackets.
# So an expression is longer than that, or ends with the line.
_INTEL_WEDGED = Pattern(
    rf"CRITICAL: Xe has declared device {_SLOT}\.[0-7] as wedged"
    r"|Failed to (?:re-)?initialize GPU, declaring it wedged"
    r"|Failed to idle engines, declaring wedged"
    r"|GPU recovery failed|Device is non-operational; MMIO access returns 0x|device lost$"
    r"|[A-Za-z_ ]{1,40} timed out, cancelling all in-flight rendering"
    r"|(?:Failed to initialise HW following reset|GPU reset not supported)"
    r"|(?:Failed to restart [a-z0-9_']{1,16} \(-|Enabling (?:uc|PPGTT) failed)"
    r"|[A-Za-z0-9 .:]{1,40} MMIO unreliable|Lost access to MMIO BAR"
)

# This one matches with the name of the GT, because it is short.
_INTEL_GT_FAILED = Pattern(
    r"(?:Tile[0-9]: )?GT[0-9]: (?:reset failed|(?:runtime )?resume failed"
    r"|runtime suspend failed \(-(?!EBUSY|EAGAIN))"
)

_INTEL_RESET_FAILED = Pattern(
    r"can't suspend \(xe_pci_runtime_suspend \[xe\] returned -[0-9]"
    r"|Failed to reset (?:chip|GuC)"
    r"|Driver-FLR-[a-z]{1,16} wait [a-z ]{1,24} failed|Failed to wait for Driver-FLR bit to clear"
)
_INTEL_INIT_FAILED = Pattern(
    r"PCODE initialization timedout|Failed to (?:early )?initialize uC"
    r"|intel_pcode_init failed|(?:GUC: )?load failed: status"
    r"|(?:GUC: )?(?:firmware (?:signature verification failed|exception\. EIP)|illegal init/ADS data)"
    r"|(?:GUC: )?(?:firmware production part check failure|illegal (?:register|workaround) [a-zA-Z])"
    r"|(?:GUC: )?(?:Unsuccessful self-config|still extracting hwconfig table|invalid key requested)"
    r"|GUC: CT: Failed to (?:register|enable|open) |GuC (?:init failed with|reset timed out)"
    r"|(?:DMA for GuC fw failed|Failed to enable GuC CT|Hardware reported no preallocated GSM)"
    r"|hwe [a-z]{3}[0-9]{1,2}: (?:nop )?(?:xe_exec_queue_create|emit_[a-z]{2,3}_job) failed"
    r"|Failed to (?:setup region\(-|allocate s[a-z]{1,8} page)|GSC ER timed out"
    r"|Failed to (?:read back from|ioremap) memory region|(?:Failed to map the ggtt|Scratch setup failed)"
    r"|Failed to reserve top of GGTT for GuC|pci resource is not valid"
    r"|Tile without any CPU visible VRAM|failed to (?:re-)?enable GGTT"
    r"|(?:VRAM|LMEM|lmem) not initialized by firmware"
    r"|Survivability Boot Status : Critical Failure|failed to map registers"
    r"|(?:GuC PC Start failed|Failed to start GuC PC: )|Unsupported GuC v[0-9]"
    r"|GuC initialization failed|Device initialization failed \(-[0-9]"
)
_INTEL_SURVIVES = Pattern(
    r"(?:SIGID=[0-9]{1,6} )?(?:Runtime Survivability mode enabled|In Survivability mode)"
    r"|Firmware (?:flash|update) required, Please refer",
    re.I,
)
_INTEL_ERROR = Pattern(
    r"\[Hardware Error\]: (?:tile[0-9] reported )?(?:(FATAL)|NONFATAL)(?: error|: )"
    r"|\[Hardware Error\]: [A-Za-z0-9 :()/-]{1,60}uncorrect(?:able|ed)"
    r"|SIGID=[0-9]{1,6} (FATAL) \(-E[A-Z0-9]{1,16}\) ",
    re.I,
)


# A line about a packet. It begins with the prefix of a firewall's rule, which may be any text of a
# container that administers the node's network. The expression is longer than the name of a program
# may be, so no program can hide a line that names it.
_OF_PACKET = Pattern(r"IN=\S{0,15} OUT=\S{0,15} (?:.{0,400}?SRC=\S{1,50} (?:MAC)?DST=|ARP HTYPE=)")


def event_of(line: Line) -> Event | None:
    """Returns the event that a line of the kernel's log reports about a GPU's health, or None.

    A line is ignored if the kernel attributes it to another device than the one in its text.
    """
    if line.text.startswith("pcieport "):
        event, reporter = _event_of_port(line.text, line.at)
    else:
        event = _event_of_text(line.text, line.at)
        reporter = event.address if event is not None else ""
    if event is None or line.device not in ("", f"+pci:{reporter}"):
        return None
    if _OF_PACKET.search(line.text):
        return None
    return replace(event, number=line.number)


def _event_of_port(text: str, at: float) -> tuple[Event | None, str]:
    """Returns the event that a port reports about the device below it, and the port's address."""
    match = _PCI_ERROR_AT_PORT.match(text)
    if match is not None:
        return _pci_error(match[3], match[2], at), match[1]
    match = _CUT_OFF_BY_PORT.match(text)
    address = _cut_off_by(match) if match is not None else ""
    if match is None or not address:
        return None, ""
    event = Event(
        address=address,
        kind="aer-fatal",
        at=at,
        severity=FAILED,
        sentence="the PCIe port has cut the GPU off after an error of it (DPC)",
    )
    return event, match[1]


def _cut_off_by(match: re.Match[str]) -> str:
    """Returns the address of the device that a port has cut off, or "" if the line names none.

    Older kernels print the registers of the port. The source is a device only if the trigger was
    a message of it.
    """
    if match[3]:
        return match[3]
    if int(match[2], 16) & _TRIGGER not in _TRIGGERS_OF_DEVICE:
        return ""
    source = int(match[4], 16)
    domain = match[1].partition(":")[0]
    return f"{domain}:{source >> 8:02x}:{source >> 3 & 0x1F:02x}.{source & 7}"


def _event_of_text(text: str, at: float) -> Event | None:
    if text.startswith("NVRM: "):
        return _event_of_nvidia(text, at)

    match = _OF_DEVICE.match(text)
    if match is not None:
        event = _event_of_device(match[1], match[2], text[match.end() :], at)
        if event is not None:
            return event

    match = _INITIALIZED.match(text)
    if match is not None:
        return Event(address=match[1], kind=BOUND, at=at)
    match = _PROBE_OF_FAILED.match(text)
    if match is not None:
        return _init_failed(match[2], match[1], "probe failed", at)
    if text.startswith("PM: "):
        match = _RESUME_FAILED.match(text)
        return _reset_failed(match[1], "failed to resume", at) if match is not None else None
    match = _SXID.match(text) if text.startswith("nvidia-nvswitch") else None
    return _sxid(match, at) if match is not None else None


def _event_of_nvidia(text: str, at: float) -> Event | None:
    match = _XID.match(text)
    if match is not None:
        return _xid(match, text[match.end() :], at)

    match = _OF_NVIDIA_GPU.match(text)
    if match is not None:
        address, words = match[1], text[match.end() :]
        if _NVIDIA_INIT_FAILED.match(words):
            return _init_failed(address, "NVIDIA", words, at)
        if _FALLEN_OFF.match(words):
            return _event_of_code(address, _CODE_OF_FALLEN_OFF, at)
        return None

    match = _FALLEN_OFF_AT_START.match(text)
    if match is not None:
        return _event_of_code(match[1], _CODE_OF_FALLEN_OFF, at)
    match = _GSP_IS_SILENT.match(text)
    if match is not None:
        return _event_of_code(f"{match[1]}.0", _CODE_OF_GSP_TIMEOUT, at)
    match = _REMOVED_IN_USE.match(text)
    if match is not None:
        return _lost(match[1], "it is removed while it is in use", at)
    match = _START_FAILED.match(text)
    if match is not None:
        return _init_failed(match[1], "NVIDIA", "device start failed", at)
    match = _BAD_REGION.match(text)
    if match is not None:
        return _init_failed(match[1], "NVIDIA", "a PCI I/O region of it is invalid", at)
    return None


def _event_of_device(driver: str, address: str, words: str, at: float) -> Event | None:
    """Returns the event of a line about a device. `words` follow the names of driver and device."""
    if _WEDGED.match(words):
        return wedged_event(address, "", at)
    if _ENABLED.match(words) and driver != "vfio-pci":
        return Event(address=address, kind=BOUND, at=at)

    event = _event_of_pci(driver, address, words, at)
    if event is not None:
        return event
    if driver == "amdgpu":
        return _event_of_amdgpu(address, words, at)
    if driver in ("i915", "xe"):
        return _event_of_intel(driver, address, words, at)
    return None


def _event_of_pci(driver: str, address: str, words: str, at: float) -> Event | None:
    """Returns the event of a line that the kernel may write about any device on the PCI bus."""
    if _PCI_LOST.match(words):
        return _lost(address, _quote(words), at)
    if _PCI_RESET_FAILED.match(words):
        return _reset_failed(address, words, at)
    if _CANNOT_ENABLE.match(words):
        return _init_failed(address, driver, words, at)
    match = _PROBE_FAILED.match(words)
    if match is not None:
        return _init_failed(address, match[1], "probe failed", at)
    match = _PCI_ERROR.match(words)
    return _pci_error(address, match[1], at) if match is not None else None


def _pci_error(address: str, nonfatal: str | None, at: float) -> Event:
    """Returns the event of an error on the bus. `nonfatal` is None if the error was fatal."""
    if nonfatal is not None:
        return Event(
            address=address,
            kind="aer-nonfatal",
            at=at,
            severity=DEGRADED,
            sentence="the PCIe port has reported errors of the GPU that were not fatal (AER)",
            lasts=ERROR_WINDOW,
        )
    sentence = "the PCIe port has reported fatal errors of the GPU (AER)"
    return Event(address=address, kind="aer-fatal", at=at, severity=FAILED, sentence=sentence)


def _event_of_amdgpu(address: str, words: str, at: float) -> Event | None:
    if _AMD_RESET.match(words):
        return Event(address=address, kind=BOUND, at=at)
    if _AMD_RESET_FAILED.match(words):
        return _reset_failed(address, words, at)
    if _AMD_INIT_FAILED.match(words):
        return _init_failed(address, "amdgpu", words, at)

    match = _AMD_HOT.match(words)
    if match is not None:
        return _hot(address, match[1] is not None, at)

    kind, severity, sentence = "", FAILED, ""
    if _AMD_HANG.match(words):
        kind = "wedged"
        sentence = (
            f"the GPU hangs ({_quote(words)}); if its driver cannot reset it, reboot the node"
        )
    elif _AMD_SMU_HANG.match(words):
        kind = "unreadable"
        sentence = f"the GPU's power controller (SMU) hangs ({_quote(words)}): reset the GPU"
    elif _is_uncorrected(words):
        kind = "ras"
        sentence = "its memory or its engines had errors that could not be corrected (amdgpu RAS)"
    elif _AMD_BAD_PAGES.match(words):
        kind, severity = "bad-pages", DEGRADED
        sentence = "its memory has too many bad pages (amdgpu RAS): replace the GPU"
    if not kind:
        return None
    return Event(address=address, kind=kind, at=at, severity=severity, sentence=sentence)


def _is_uncorrected(words: str) -> bool:
    """Returns True if a line reports errors that could not be corrected.

    The counters of a GPU that sleeps read as 0xFFFF, so the sum is a multiple of that.
    """
    match = _AMD_UNCORRECTED.match(words)
    return match is not None and (match[1] is None or int(match[1]) % _COUNT_OF_SLEEPING != 0)


def _hot(address: str, is_critical: bool, at: float) -> Event:
    """Returns the event of a GPU that is too hot, or that was shut down for that reason."""
    return Event(
        address=address,
        kind="hot",
        at=at,
        severity=FAILED if is_critical else DEGRADED,
        sentence=(
            f"amdgpu reported that the GPU is too hot{' and shuts it down' if is_critical else ''}: "
            "check fans and air flow"
        ),
        lasts=None if is_critical else ERROR_WINDOW,
    )


def _event_of_intel(driver: str, address: str, words: str, at: float) -> Event | None:
    if _INTEL_GT_FAILED.match(words):
        return _reset_failed(address, words, at)
    told = _OF_GT.sub("", words, count=1)
    if _INTEL_WEDGED.match(told):
        return wedged_event(address, "", at)
    if _INTEL_RESET_FAILED.match(told):
        return _reset_failed(address, words, at)
    if _INTEL_INIT_FAILED.match(told):
        return _init_failed(address, driver, words, at)
    if _INTEL_SURVIVES.match(words):
        return Event(
            address=address,
            kind="survivability",
            at=at,
            severity=FAILED,
            sentence=(
                "the xe driver has found the firmware unfit for use (survivability mode): "
                "it must be flashed again"
            ),
        )

    match = _INTEL_ERROR.match(words)
    if match is None:
        return None
    is_fatal = bool(match[1] or match[2])
    return Event(
        address=address,
        kind="hardware-error",
        at=at,
        severity=FAILED if is_fatal else DEGRADED,
        sentence=(
            f"the GPU reported a hardware error that was {'' if is_fatal else 'not '}fatal; "
            f"{'reset it' if is_fatal else 'watch it'}"
        ),
        lasts=None if is_fatal else ERROR_WINDOW,
    )


def _lost(address: str, why: str, at: float) -> Event:
    sentence = f"the kernel cannot reach the GPU ({why}): reboot the node"
    return Event(address=address, kind="lost", at=at, severity=FAILED, sentence=sentence)


def _reset_failed(address: str, words: str, at: float) -> Event:
    sentence = (
        f"its driver could not reset the GPU ({_quote(words)}): "
        "bind the driver again, or reboot the node"
    )
    return Event(address=address, kind="reset-failed", at=at, severity=FAILED, sentence=sentence)


def _init_failed(address: str, driver: str, words: str, at: float) -> Event:
    sentence = (
        f"the {driver} driver cannot initialize the GPU ({_quote(words)}); "
        "see the lines before it in the kernel's log"
    )
    return Event(address=address, kind=UNINITIALIZED, at=at, severity=FAILED, sentence=sentence)


def _quote(words: str) -> str:
    """Returns the begin of a line, for a sentence."""
    return words[:_QUOTED].rstrip(" .!:")


def _sxid(match: re.Match[str], at: float) -> Event:
    """Returns the event of an NVSwitch. It concerns all NVIDIA GPUs of the node.

    The switches of a node connect all of its GPUs. A fatal error breaks CUDA on each of them.
    """
    code, is_fatal = match[2], match[3] is not None
    advice = "reset the GPUs and restart the Fabric Manager, or reboot the node"
    return Event(
        address=match[1],
        vendor="nvidia",
        kind="sxid",
        at=at,
        severity=FAILED if is_fatal else NOTE,
        sentence=(
            f"an NVSwitch of the node reported SXid {code}, which is "
            f"{f'fatal: {advice}' if is_fatal else 'not fatal'}"
        ),
        value=code,
        lasts=None if is_fatal else ERROR_WINDOW,
    )


def wedged_event(address: str, methods: str, at: float, source: str = KERNEL_LOG) -> Event | None:
    """Returns the event of a GPU that hangs, as the kernel reports it by uevent or in its log.

    `methods` are the ways to recover the GPU that a uevent advises. Returns None if the uevent
    advises only "none": then the driver has recovered the GPU.
    """
    ways = [way for way in methods.split(",") if way and way != "none"]
    if methods and not ways:
        return None
    advice = f"; the kernel advises: {', '.join(ways)}" if ways else ""
    sentence = f"the GPU hangs and its driver could not recover it (wedged){advice}"
    return Event(
        address=address,
        kind="wedged",
        at=at,
        severity=FAILED,
        sentence=sentence,
        source=source,
    )


def _xid(match: re.Match[str], details: str, at: float) -> Event:
    """Returns the event of an Xid. `details` is the text after the number and the program."""
    # A domain of four digits is written as sysfs writes it. Some drivers print eight.
    domain, _, rest = match[1].lower().partition(":")
    address, code = f"{int(domain, 16):04x}:{rest}.0", int(match[3])
    if code == _RECOVERY_CODE:
        recovery = _RECOVERY.fullmatch(details)
        if recovery is not None:
            return _recovery(address, recovery[1], at)

    is_fatal = code in _NVLINK_CODES and _IS_FATAL.match(details) is not None
    return _event_of_code(address, code, at, is_fatal=is_fatal, instance=match[2])


def _event_of_code(
    address: str, code: int, at: float, *, is_fatal: bool = False, instance: str | None = None
) -> Event:
    # Imported late, because most nodes never see an Xid and then need not load it.
    from . import xids

    known = xids.find(code)
    severity = FAILED if is_fatal else known.severity
    name = f" ({known.mnemonic})" if known.mnemonic else ""
    return Event(
        address=address,
        kind="xid",
        at=at,
        severity=severity,
        sentence=f"the NVIDIA driver reported Xid {code}{name}: {known.meaning}; {known.advice}",
        value=str(code),
        lasts=None if severity == FAILED else ERROR_WINDOW,
        instance=int(instance) if instance and not known.is_of_whole_gpu else None,
    )


def _recovery(address: str, action: str, at: float) -> Event:
    """Returns the event of the driver's own verdict on the GPU (Xid 154)."""
    if action == _NO_RECOVERY:
        # The GPU was reset, so everything that was reported before is over.
        return Event(address=address, kind=BOUND, at=at)
    return Event(
        address=address,
        kind="xid",
        at=at,
        severity=DEGRADED if action in _MILD_RECOVERIES else FAILED,
        sentence=f"the NVIDIA driver says what the GPU needs (Xid 154): {action}",
        value=str(_RECOVERY_CODE),
    )
