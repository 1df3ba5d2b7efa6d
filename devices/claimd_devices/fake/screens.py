"""Display controllers that are no GPUs, of server management chips and virtual machines."""

from __future__ import annotations

from dataclasses import dataclass

from .gpu import FakeVendor, Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen(Model):
    """A display controller that a scan skips."""

    on_board: bool = True
    is_gpu: bool = False


class FakeScreens(FakeVendor):
    """Screens, which have only the files of PCI and DRM."""

    models = (
        Screen(
            name="bmc:aspeed",
            title="an ASPEED server management chip's screen, which is no GPU",
            ids="1a03:2000",
            revision="52",
            driver="ast",
        ),
        Screen(
            name="bmc:matrox",
            title="a Matrox server management chip's screen, which is no GPU",
            ids="102b:0538",
            board="1590:00e4",
            revision="01",
            driver="mgag200",
        ),
        Screen(
            name="virtual:bochs",
            title="the screen that QEMU emulates, which is no GPU",
            ids="1234:1111",
            board="1af4:1100",
            revision="02",
            driver="bochs-drm",
        ),
        Screen(
            name="virtual:virtio",
            title="a virtio screen, which is no GPU",
            ids="1af4:1050",
            board="1af4:1100",
            revision="01",
            driver="virtio-pci",
        ),
        Screen(
            name="virtual:vmware",
            title="VMware's screen, which is no GPU",
            ids="15ad:0405",
            driver="vmwgfx",
        ),
    )
