"""`claimd slices`: what would be published of a machine."""

from __future__ import annotations

import argparse
import os
import sys

from .. import config, errors
from ..api import versions
from ..api.resource import Device, ResourceSlice
from ..publish import sharing, slices
from . import machine, output
from .exit_codes import OK


def run(arguments: argparse.Namespace) -> int:
    with machine.opened(config.load(vars(arguments))) as here:
        settings = here.settings
        try:
            sharing_rules = sharing.parse(settings.share)
        except ValueError as error:
            raise errors.UsageError(str(error)) from error
        built, problems = slices.build(
            here.scan(),
            settings.driver_name,
            settings.node_name or os.uname().nodename,
            slices.Options(numa_list=settings.numa_list, sharing=sharing_rules),
        )

    if arguments.output in ("json", "yaml"):
        items = [versions.slice_to_wire(slice_, versions.PREFERRED[0]) for slice_ in built]
        output.document({"apiVersion": "v1", "kind": "List", "items": items}, arguments.output)
    elif arguments.output == "wide":
        output.rows(_wide(built))
    else:
        output.rows(_narrow(built))
    for problem in problems:
        print(f"claimd: {problem}", file=sys.stderr)
    return OK


def _narrow(built: list[ResourceSlice]) -> list[list[str]]:
    rows = [["SLICE", "DRIVER", "NODE", "POOL", "DEVICES"]]
    for slice_ in built:
        spec = slice_.spec
        name = slice_.metadata.name
        rows.append([name, spec.driver, spec.node_name, spec.pool.name, str(len(spec.devices))])
    return rows


def _wide(built: list[ResourceSlice]) -> list[list[str]]:
    rows = [["SLICE", "DEVICE", "ATTRIBUTE", "VALUE"]]
    for slice_ in built:
        for device in slice_.spec.devices:
            for name, value in _facts(device).items():
                rows.append([slice_.metadata.name, device.name, name, output.cell(value)])
    return rows


def _facts(device: Device) -> dict[str, object]:
    """Attributes, capacities and what it takes of counters, by name."""
    facts: dict[str, object] = {}
    for name, attribute in device.attributes.items():
        facts[name] = attribute.value
    for name, capacity in device.capacity.items():
        facts[name] = capacity.value
    for consumption in device.consumes_counters:
        for name, counter in consumption.counters.items():
            facts[f"takes {name}"] = counter.value
    return facts
