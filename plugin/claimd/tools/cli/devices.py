"""`claimd devices`: lists the GPUs of a machine with their health, and the GPUs that it does not
use.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from claimd.common import errors
from claimd.node import config
from claimd.node.config import Config

from . import machine, output
from .exit_codes import OK

if TYPE_CHECKING:
    from claimd_devices.gpu import Gpu, Inventory
    from claimd_devices.health import HealthReport

_Column = tuple[str, Callable[["Gpu"], object]]

_UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def run(arguments: argparse.Namespace) -> int:
    settings = config.load(vars(arguments))
    with machine.open_machine(settings) as here:
        inventory = here.scan()
        if arguments.output in ("json", "yaml"):
            report = _look_at_health(here.settings, inventory)
            document = {
                "gpus": output.plain(inventory.gpus),
                "skipped": output.plain(inventory.skipped),
                "findings": _findings(report),
            }
            output.print_document(document, arguments.output)
            return OK

        # A capture is unpacked in a temporary folder, whose name would tell people nothing.
        wide = arguments.output == "wide"
        place = f"in {settings.root}" if here.replay else f"under {settings.roots.sys}"
        _print_table(inventory, place, wide)
        if wide:
            _print_notes(inventory)
            _print_sharing(here.settings, inventory)
            _print_health(here.settings, inventory)
    return OK


def _print_table(inventory: Inventory, place: str, wide: bool) -> None:
    if inventory.gpus:
        _print_gpus(WIDE if wide else NARROW, inventory.gpus)
    else:
        output.print_line(f"no GPUs found {place}")
    for skipped in inventory.skipped:
        output.print_line(f"left alone: {skipped.address}: {skipped.reason}")


def _print_notes(inventory: Inventory) -> None:
    notes = []
    for gpu in inventory.gpus:
        if gpu.libraries:
            notes.append((gpu.name, f"libraries: {gpu.libraries.reason}"))
        notes += [(gpu.name, note) for note in gpu.notes]
    _print_once(notes, inventory)


def _print_sharing(settings: Config, inventory: Inventory) -> None:
    """Prints how the setting `share` applies to each GPU, and which claims hold shares."""
    # The table alone, without -o wide, needs none of these.
    from claimd.common import names
    from claimd.node.prepare import checkpoint
    from claimd.node.publish import sharing

    try:
        rules = sharing.parse(settings.share)
    except ValueError as error:
        raise errors.UsageError(str(error)) from error

    sentences = []
    for gpu in inventory.gpus:
        shared = sharing.of_gpu(rules, gpu)
        reason = sharing.reason_unfit(shared, gpu.memory)
        if reason:
            sentences.append((gpu.name, f"not shared by memory: {reason}"))
        elif shared != sharing.ALONE:
            sentences.append((gpu.name, f"shared: {shared}"))
    _print_once(sentences, inventory)

    # The checkpoints of a running claimd say what its claims hold now.
    folder = names.plugin_folder(settings.kubelet_dir, settings.driver_name)
    prepared, problems = checkpoint.read_claims(folder)
    for claim in sorted(prepared, key=lambda claim: claim.title):
        for device in claim.devices:
            if device.share_id is not None:
                amounts = [f"{name} {text}" for name, text in device.consumed_capacity.items()]
                output.print_line(
                    f"{device.device}: {claim.title} has {', '.join(amounts) or 'a share'}"
                )
    for problem in problems:
        output.print_line(f"not known: which claims have shares: {problem}")


def _look_at_health(
    settings: Config, inventory: Inventory, complain: Callable[[str], None] = lambda text: None
) -> HealthReport:
    """Returns the health of each GPU.

    Some faults show only over time. They are in the state that a `claimd run` on this machine has
    written. `complain` is told if that state cannot be read.
    """
    from claimd.common import names
    from claimd.node.report import health_state
    from claimd_devices import monitor, symptoms
    from claimd_devices.health import HealthState

    folder = names.plugin_folder(settings.kubelet_dir, settings.driver_name)
    try:
        state = health_state.read_file(folder, health_state.boot_id(settings.roots))
    except (OSError, ValueError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        complain(f"not known: what a running claimd has seen: {reason}")
        state = HealthState()

    # Findings of the state and of the files that can be read now, together.
    read_symptoms = symptoms.read_gpus
    if settings.nvml:
        from claimd_devices import nvml_health

        read_symptoms = nvml_health.Reader(settings.roots, waits=True).read_gpus
    return monitor.check_once(settings.roots, inventory, state, read_symptoms)


def _findings(report: HealthReport) -> list[dict[str, object]]:
    """Returns the findings for programs, each with its device."""
    from claimd.common import timestamps

    rows: list[dict[str, object]] = []
    for name, findings in report.findings:
        for finding in findings:
            since = timestamps.rfc3339(finding.since) if finding.since else None
            rows.append(
                {
                    "device": name,
                    "kind": finding.kind,
                    "value": finding.value,
                    "severity": finding.severity,
                    "sentence": finding.sentence,
                    "source": finding.source,
                    "since": since,
                }
            )
    return rows


def _print_health(settings: Config, inventory: Inventory) -> None:
    """Prints the health of each GPU."""
    from claimd.common import timestamps

    report = _look_at_health(settings, inventory, output.print_line)
    sentences = []
    for name, findings in report.findings:
        for finding in findings:
            since = f" (since {timestamps.rfc3339(finding.since)})" if finding.since else ""
            sentences.append((name, f"{finding.severity}: {finding.text}{since}"))
    _print_once(sentences, inventory)
    for unwatched in report.unwatched:
        output.print_line(f"not watched: {unwatched}")


def _print_once(sentences: Iterable[tuple[str, str]], inventory: Inventory) -> None:
    """Prints each sentence with its GPU, or once if it holds for all GPUs or all of a vendor."""
    gpus_by_sentence: dict[str, list[str]] = {}
    for name, sentence in sentences:
        gpus_by_sentence.setdefault(sentence, []).append(name)

    # The larger group comes first, so that it wins where both have the same GPUs.
    groups = {"all GPUs": [gpu.name for gpu in inventory.gpus]}
    for gpu in inventory.gpus:
        groups.setdefault(f"all GPUs of {gpu.vendor}", []).append(gpu.name)

    for sentence, gpus in gpus_by_sentence.items():
        subjects = gpus
        for group, members in groups.items():
            if len(gpus) > 1 and gpus == members:
                subjects = [group]
                break
        for subject in subjects:
            output.print_line(f"{subject}: {sentence}")


# ---------------------------------------------------------------- the columns


def _print_gpus(columns: Sequence[_Column], listed: Sequence[Gpu]) -> None:
    """Prints a table with a row for each GPU."""
    table = [[title for title, _ in columns]]
    for gpu in listed:
        table.append([output.cell(value(gpu)) for _, value in columns])
    output.print_rows(table)


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
