"""The table of what can be written: a row a vendor, and from these all models and machines."""

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

# What may follow a model, behind a comma each.
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
    """The row that a model is from."""
    return _VENDOR_OF[model.name]


def vendor_of_driver(driver: str) -> FakeVendor | None:
    """The vendor whose models are bound to a driver; None for one that is nobody's."""
    for model in MODELS.values():
        if model.driver == driver and model.is_gpu:
            return vendor_of_model(model)
    return None


def models() -> dict[str, str]:
    """Every model that can be written, with what people call it."""
    return {name: model.title for name, model in MODELS.items()}


def machines() -> dict[str, str]:
    """Every machine that can be written, with the words that it stands for."""
    return {name: " ".join(words) for name, words in MACHINES.items()}
