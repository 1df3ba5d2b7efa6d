"""The output of the command line: tables for people, JSON and YAML for tools.

The columns for GPUs are here, because several commands print GPUs. A table of one command only is
in the module of that command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from claimd.common import plain_text

if TYPE_CHECKING:
    from claimd_devices.gpu import Gpu

_Column = tuple[str, Callable[["Gpu"], object]]

_UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def print_gpus(columns: Sequence[_Column], listed: Sequence[Gpu]) -> None:
    """Prints a table with a row for each GPU."""
    table = [[title for title, _ in columns]]
    for gpu in listed:
        table.append([cell(value(gpu)) for _, value in columns])
    print_rows(table)


def print_rows(table: Sequence[Sequence[str]]) -> None:
    """Prints a table with aligned columns. Its first row has the titles.

    Hardware, drivers and users write some of the texts. Each stays on its line.
    """
    shown = []
    for row in table:
        shown.append(list(map(plain_text.plain_line, row)))

    columns = zip(*shown, strict=True)
    widths = [max(map(len, column)) for column in columns]
    for row in shown:
        padded = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        print("  ".join(padded).rstrip())


def print_line(text: str) -> None:
    """Prints a sentence that may quote hardware, files or objects of strangers."""
    print(plain_text.plain_line(text))


def cell(value: object) -> str:
    """Returns the value as text for a table, and a dash for None or an empty text."""
    return "-" if value is None or value == "" else str(value)


def print_document(content: object, form: str) -> None:
    """Prints the content as `json` or as `yaml`."""
    if form == "json":
        print(json_text(content), end="")
        return

    # The YAML library takes longer to load than most commands take to run.
    from claimd.kubernetes.api import text

    print(text.dump_yaml(content), end="")


def json_text(content: object) -> str:
    """Returns the JSON text of the content, as `print_document` prints it."""
    import json

    return f"{json.dumps(content, indent=2)}\n"


def plain(value: object) -> Any:
    """Returns the value as JSON can hold it: a dataclass becomes an object, a tuple a list.

    The object has the names of the dataclass's fields. Empty values are left out.
    """
    import dataclasses

    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value

    content = {}
    for field in dataclasses.fields(value):
        if not field.init:
            continue
        item = plain(getattr(value, field.name))
        if item not in (None, [], {}):
            content[field.name] = item
    return content


def _link(gpu: Gpu) -> str | None:
    """Returns the link's lanes and gigatransfers per second: now, and at best if that is more."""
    if not gpu.link_width or not gpu.link_speed:
        return None
    best = f"x{gpu.link_width} {gpu.link_speed / 1000:g}"
    if gpu.link_width_now is None or gpu.link_speed_now is None:
        return best
    now = f"x{gpu.link_width_now} {gpu.link_speed_now / 1000:g}"
    return best if now == best else f"{now} of {best}"


def _size(count: int | None) -> str | None:
    if count is None:
        return None

    for unit, size in _UNITS:
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"


def _nodes(gpu: Gpu) -> str:
    return ",".join(node.path.removeprefix("/dev/") for node in gpu.nodes)


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
    ("LINK", _link),
    ("VERSION", lambda gpu: gpu.driver_version),
    ("ID", lambda gpu: f"{gpu.vendor_id:04x}:{gpu.device_id:04x}"),
    ("ROOT", lambda gpu: gpu.pcie_root),
    ("UUID", lambda gpu: gpu.uuid),
    ("NODES", _nodes),
)
