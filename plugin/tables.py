"""How the command line prints: tables for people, JSON and YAML for tools. What is printed, the
commands decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from devices.gpu import Gpu

_Column = tuple[str, Callable[["Gpu"], object]]

NARROW: tuple[_Column, ...] = (
    ("NAME", lambda gpu: gpu.name),
    ("VENDOR", lambda gpu: gpu.vendor),
    ("PRODUCT", lambda gpu: gpu.product),
    ("MEMORY", lambda gpu: _size(gpu.memory)),
    ("NUMA", lambda gpu: gpu.numa_node),
    ("DRIVER", lambda gpu: gpu.driver),
)
WIDE: tuple[_Column, ...] = (
    *NARROW,
    ("TYPE", lambda gpu: gpu.kind),
    ("PROFILE", lambda gpu: gpu.profile),
    ("FAMILY", lambda gpu: gpu.family),
    ("LINK", lambda gpu: _link(gpu)),  # noqa: PLW0108  it stands further down
    ("VERSION", lambda gpu: gpu.driver_version),
    ("ID", lambda gpu: f"{gpu.vendor_id:04x}:{gpu.device_id:04x}"),
    ("ROOT", lambda gpu: gpu.pcie_root),
    ("UUID", lambda gpu: gpu.uuid),
    ("NODES", lambda gpu: ",".join(node.path.removeprefix("/dev/") for node in gpu.nodes)),
)


def gpus(columns: Sequence[_Column], listed: Sequence[Gpu]) -> None:
    rows(
        [
            [title for title, _ in columns],
            *([cell(value(gpu)) for _, value in columns] for gpu in listed),
        ]
    )


def rows(table: Sequence[Sequence[str]]) -> None:
    """The first is the titles."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def cell(value: object) -> str:
    return "-" if value is None or value == "" else str(value)


def _link(gpu: Gpu) -> str | None:
    """Lanes and gigatransfers a second, and what they could be if that is more."""
    if not gpu.link_width or not gpu.link_speed:
        return None
    best = f"x{gpu.link_width} {gpu.link_speed / 1000:g}"
    now = f"x{gpu.link_width_now or '?'} {(gpu.link_speed_now or 0) / 1000:g}"
    return best if now == best else f"{now} of {best}"


def _size(count: int | None) -> str | None:
    if count is None:
        return None
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        step = 1024 ** {"TiB": 4, "GiB": 3, "MiB": 2, "KiB": 1}[unit]
        if count >= step:
            return f"{count / step:.4g} {unit}"
    return f"{count} B"


def data(what: object, form: str) -> None:
    import json

    if form == "json":
        print(json.dumps(what, indent=2))
        return
    from .api import text

    print(text.dump_yaml(what), end="")


def plain(value: object) -> Any:
    """A dataclass as JSON has it: absent instead of null, names as they are in the code."""
    import dataclasses

    if dataclasses.is_dataclass(value):
        fields = (
            (f.name, plain(getattr(value, f.name))) for f in dataclasses.fields(value) if f.init
        )
        return {name: item for name, item in fields if item not in (None, [], {})}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value
