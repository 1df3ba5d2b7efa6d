"""A fake tree on disk, for tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from claimd_devices import scan
from claimd_devices.gpu import Gpu, Inventory, Roots


@dataclass(frozen=True)
class Tree:
    folder: Path

    @property
    def roots(self) -> Roots:
        return Roots.in_folder(self.folder)

    def scan(self, **changes: Any) -> Inventory:
        """Scans the tree. `changes` are fields of the roots."""
        return scan.scan(replace(self.roots, **changes), with_link_now=True)

    def only(self) -> Gpu:
        (gpu,) = self.scan().gpus
        return gpu

    def refusal(self) -> str:
        """Returns the reason why the only function of the tree is no GPU."""
        inventory = self.scan()
        assert inventory.gpus == ()
        (skipped,) = inventory.skipped
        return skipped.reason

    def function(self, address: str) -> Path:
        return (self.folder / "sys/bus/pci/devices" / address).resolve()

    def put(self, path: str, content: str | bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)


Make = Callable[..., Tree]
