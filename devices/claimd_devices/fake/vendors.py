"""The table of the vendors that can be written, with all their models and machines."""

from __future__ import annotations

from .amd import FakeAmd
from .gpu import FakeVendor, Model
from .intel import FakeIntel
from .nvidia import FakeNvidia
from .screens import FakeScreens

VENDORS: tuple[FakeVendor, ...] = (FakeNvidia(), FakeAmd(), FakeIntel(), FakeScreens())

MODELS: dict[str, Model] = {}
MACHINES: dict[str, tuple[str, ...]] = {}
_VENDOR_OF: dict[str, FakeVendor] = {}  # by the model's name

# The options of a device, each after a comma behind the model.
OPTIONS = {
    "driver=NAME": "the kernel driver that it is bound to, none for no driver",
    "console": "it shows the boot, on a screen that is connected",
    "domain=HEX": "the PCI domain that it is in",
    "vfs=NUMBER": "how many virtual functions it has",
}

for _vendor in VENDORS:
    for _model in _vendor.models:
        MODELS[_model.name] = _model
        _VENDOR_OF[_model.name] = _vendor
    for _name, _words in _vendor.machines.items():
        MACHINES[_name] = tuple(_words)
    OPTIONS |= _vendor.options


def vendor_of_model(model: Model) -> FakeVendor:
    """Returns the vendor that has a model."""
    return _VENDOR_OF[model.name]


def vendor_of_driver(driver: str) -> FakeVendor | None:
    """Returns the vendor of a driver, or None if no vendor's models have that driver."""
    for model in MODELS.values():
        if model.driver == driver and model.is_gpu:
            return vendor_of_model(model)
    return None


def models() -> dict[str, str]:
    """Returns the titles of all models, by name."""
    return {name: model.title for name, model in MODELS.items()}


def machines() -> dict[str, str]:
    """Returns the words of all machines, by name."""
    return {name: " ".join(words) for name, words in MACHINES.items()}
