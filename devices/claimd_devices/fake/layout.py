"""Makes the functions of a machine from words, with their places on the bus and their numbers.

The module does no I/O, and the same words give the same machine.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

from . import vendors
from .gpu import (
    Function,
    Model,
    has_drm,
    has_render,
    is_for_virtual_machines,
    number,
    refuse,
)
from .vendors import MACHINES, MODELS

_KEYS = ("roots", "numa", "boot_id", "iommu", "devices")
_DEVICE_KEYS = ("model", "count", *(option.partition("=")[0] for option in vendors.OPTIONS))

# The options of the machine. Each is a word of its own.
MACHINE_OPTIONS = {
    "roots=NUMBER": "how many GPUs share a PCIe root; 0: all are on the first, as in a cloud",
    "numa=NUMBER": "how many NUMA nodes there are; 0: the firmware does not tell",
    "boot_id=TEXT": "the id of the boot",
    "iommu=1": "the GPUs are in IOMMU groups",
}

_ON_FIRST_ROOT = 30  # devices that fit on the first root complex, from slot 2 on
_DRIVER = re.compile(r"[a-zA-Z0-9_-]{0,64}")  # it becomes the name of a folder
_FIRST_GROUP = 20  # the first IOMMU group
_MOST = 4096  # the limit of each number in a description


def parse(words: Sequence[str]) -> dict[str, object]:
    """Parses words into a description: `machine:dgx-h100`, `nvidia:l4=4,driver=nouveau`, `roots=2`.

    Raises ValueError for words that cannot be written, with suggestions.
    """
    description: dict[str, object] = {}
    devices: list[dict[str, object]] = []
    for word in _without_machines(words):
        head, *options = word.split(",")
        name, _, value = head.partition("=")
        if name in _KEYS:
            description[name] = value
            continue

        device: dict[str, object] = {"model": name, "count": value or "1"}
        for option in options:
            key, equals, value = option.partition("=")
            device[key] = value if equals else True
        devices.append(device)

    description["devices"] = devices
    functions(description)
    return description


def functions(description: Mapping[str, object]) -> list[Function]:
    """Returns the GPUs, screens and virtual functions of a description, in the order of the bus.

    Raises ValueError for a description that cannot be written.
    """
    _check_keys(description, _KEYS)
    numa = _few("numa", description.get("numa", 1))
    found = _place(
        _describe_functions(description), _few("roots", description.get("roots", 1)), numa
    )
    _assign_numbers(found, processors(description))

    if description.get("iommu") or any(
        is_for_virtual_machines(function.driver) for function in found
    ):
        for index, function in enumerate(found):
            function.group = _FIRST_GROUP + index
            function.numbers.vfio = index
    return found


def processors(description: Mapping[str, object]) -> int:
    """Returns the number of NUMA nodes with processors: at least one, also without NUMA."""
    return max(number("numa", description.get("numa", 1)), 1)


def _without_machines(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        yield from MACHINES.get(word, (word,))


# ---------------------------------------------------------------- the devices


def _describe_functions(description: Mapping[str, object]) -> list[Function]:
    devices = description.get("devices", [])
    if not isinstance(devices, list):
        refuse("devices", devices, "a list")
    found: list[Function] = []
    for device in devices:
        found += _device_functions(device)
    return found


def _device_functions(device: object) -> list[Function]:
    if not isinstance(device, dict):
        refuse("devices", device, "a mapping")
    _check_keys(device, _DEVICE_KEYS)
    model = MODELS.get(str(device.get("model")))
    if model is None:
        _refuse_model(device.get("model"))

    driver = str(device.get("driver", model.driver))
    driver = "" if driver == "none" else driver
    if not _DRIVER.fullmatch(driver):
        refuse("driver", driver, "the name of a kernel module")
    console = device.get("console", False) in (True, "true", "yes")
    if console and not model.has_screen:
        raise ValueError(f"{model.name} has no screen: it cannot be the console")
    domain = number("domain", device.get("domain", 0), 16)
    count = _few("count", device.get("count", 1))
    options = _options(model, driver, device)
    virtual = number("vfs", device.get("vfs", 0))
    if virtual > model.virtual:
        expected = f"at most the {model.virtual} virtual functions that {model.name} can have"
        refuse("vfs", virtual, expected)

    found = []
    for _ in range(count):
        function = Function(
            model=model,
            driver=driver,
            console=console,
            screen=console and model.is_gpu,
            domain=domain,
            options=options,
            virtual=virtual,
        )
        found.append(function)
    return found


def _few(name: str, value: object) -> int:
    """Parses a number that is not above the limit."""
    found = number(name, value)
    if found > _MOST:
        refuse(name, value, f"at most {_MOST}")
    return found


def _options(model: Model, driver: str, device: Mapping[str, object]) -> dict[str, str]:
    """Returns the options of the model's vendor. Raises ValueError for those of another vendor."""
    vendor = vendors.vendor_of_model(model)
    of_driver = vendors.vendor_of_driver(driver)
    if of_driver is not None and of_driver is not vendor:
        refuse("driver", driver, f"a driver of {model.name}")

    options = {}
    for row in vendors.VENDORS:
        for option in row.options:
            key = option.partition("=")[0]
            if key not in device:
                continue
            if row is not vendor:
                refuse(key, device[key], f"an option of {model.name}")
            options[key] = str(device[key])
    vendor.check_options(model, options)
    return options


def _check_keys(mapping: Mapping[str, object], keys: Sequence[str]) -> None:
    for key in mapping:
        if key not in keys:
            refuse("description", key, f"one of {', '.join(keys)}")


def _refuse_model(name: object) -> NoReturn:
    """Raises ValueError with suggestions: nvidia:h100 for h100, machine:dgx-h100 for
    machine:dgx-h10.
    """
    word = str(name)
    names = [*MODELS, *MACHINES]
    close = [other for other in names if other.endswith(f":{word}")]
    close = close or difflib.get_close_matches(word, [*names, *_KEYS], n=2)
    meant = f", did you mean {' or '.join(close)}?" if close else ""
    raise ValueError(
        f"model: {name!r} is unknown{meant}: expected one of {', '.join(MODELS)}, "
        f"or a machine, one of {', '.join(MACHINES)}"
    )


# ---------------------------------------------------------------- places on the bus


def _place(wanted: Sequence[Function], shared: int, numa: int) -> list[Function]:
    """Gives each function an address, and adds virtual functions. Returns all, sorted by address.

    `shared` GPUs are below one root complex; 0 puts all functions on the board. Functions on the
    board have no port before them, and all others are behind ports.
    """
    on_board = [function for function in wanted if function.model.on_board or shared == 0]
    if len(on_board) > _ON_FIRST_ROOT:
        raise ValueError(
            f"{len(on_board)} GPUs do not fit on the first PCIe root: "
            f"it has room for {_ON_FIRST_ROOT}"
        )
    for slot, function in enumerate(on_board, 2):
        function.address = f"0000:00:{slot:02x}.0"
        function.numa = 0 if numa else -1

    behind_ports = [function for function in wanted if not function.address]
    _place_behind_ports(behind_ports, shared, numa)

    placed = list(wanted)
    for function in wanted:
        placed += _virtual_functions(function)
    return sorted(placed, key=lambda function: function.address)


def _place_behind_ports(found: Sequence[Function], shared: int, numa: int) -> None:
    """Puts each function on a bus of its own, and spreads the roots over the NUMA nodes."""
    groups = _group_by_root(found, shared)
    next_bus: dict[int, int] = {}
    for index, group in enumerate(groups):
        domain = group[0].domain
        own_domain = group[0].model.on_arm
        bus = root = next_bus.get(domain, 0 if own_domain else 0x10)
        for port, function in enumerate(group, 0 if own_domain else 1):
            function.numa = index * numa // len(groups) if numa else -1
            bus = _place_behind(function, root, port, bus + 1)

        if bus > 0xFF or len(group) > 0x1F:
            raise ValueError(
                f"the buses of PCI domain {domain:04x} do not suffice: "
                "put some GPUs into another domain"
            )
        next_bus[domain] = bus + 1


def _group_by_root(found: Sequence[Function], shared: int) -> list[list[Function]]:
    groups: list[list[Function]] = []
    for function in found:
        if not groups or len(groups[-1]) >= shared or groups[-1][0].domain != function.domain:
            groups.append([])
        groups[-1].append(function)
    return groups


def _place_behind(function: Function, root: int, port: int, bus: int) -> int:
    """Puts a function behind a port with this bus. Returns the last bus number that it uses."""
    domain = f"{function.domain:04x}"
    function.bridges = (f"pci{domain}:{root:02x}", f"{domain}:{root:02x}:{port:02x}.0")
    switch = function.model.switch
    if switch is not None:
        upstream = f"{domain}:{bus:02x}:00.0"
        downstream = f"{domain}:{bus + 1:02x}:{switch.number:02x}.0"
        function.bridges += (upstream, downstream)
        bus += 2
    function.address = f"{domain}:{bus:02x}:00.0"
    return bus


def _virtual_functions(physical: Function) -> list[Function]:
    """Returns the virtual functions of a function, which follow it on its bus."""
    bus = physical.address.rpartition(":")[0]
    found = []
    for index in range(physical.virtual):
        slot, number_ = divmod(index + 1, 8)
        function = Function(
            model=physical.model,
            driver=physical.driver,
            domain=physical.domain,
            physical=physical,
            index=index,
            address=f"{bus}:{slot:02x}.{number_}",
            bridges=physical.bridges,
            numa=physical.numa,
        )
        found.append(function)
    return found


# ---------------------------------------------------------------- numbers of drivers


def _assign_numbers(found: Sequence[Function], processors: int) -> None:
    """Sets the numbers that DRM and the drivers give.

    DRM counts in the order of the bus, and each driver in its own order.
    """
    drm = _DrmNumbers()
    for function in found:
        numbers = function.numbers
        if has_drm(function.driver):
            numbers.render = drm.next_render() if has_render(function.driver) else 0
            numbers.card = drm.next_card()
        for _ in range(vendors.vendor_of_model(function.model).count_more_drm(function)):
            render = drm.next_render()
            numbers.more_drm.append((drm.next_card(), render))

    for vendor in vendors.VENDORS:
        ours = [function for function in found if vendors.vendor_of_model(function.model) is vendor]
        vendor.assign_numbers(ours, processors)

    screens = [function for function in found if function.model.has_screen]
    if screens and not any(function.console for function in screens):
        screens[0].console = True


class _DrmNumbers:
    """The numbers that DRM gives to devices, separate for cards and render nodes.

    There are 64 numbers of each kind. After these, both kinds share the numbers from 192 on. DRM
    makes the render node of a device first.
    """

    def __init__(self) -> None:
        self._cards = iter(range(64))
        self._renders = iter(range(128, 192))
        self._extended = itertools.count(192)

    def next_card(self) -> int:
        """Returns the number of the next card, which is also in its name."""
        return next(itertools.chain(self._cards, self._extended))

    def next_render(self) -> int:
        """Returns the number of the next render node, which is also in its name."""
        return next(itertools.chain(self._renders, self._extended))
