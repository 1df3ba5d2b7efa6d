"""`claimd slices`: shows the ResourceSlices that `claimd run` would publish for a machine."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

import msgspec

from claimd.common import errors, plain_text
from claimd.kubernetes.api import versions
from claimd.kubernetes.api.resource import Device, ResourceSlice
from claimd.node import config
from claimd.node.publish import slices, template
from claimd.node.publish.template import Document

from . import machine, output
from .exit_codes import OK


def run(arguments: argparse.Namespace) -> int:
    if arguments.template.startswith("node:"):
        _print_template(asyncio.run(_published_by_node(arguments)), arguments)
        return OK
    if arguments.template not in ("", "here"):
        return _run_for_model(arguments)

    with machine.open_machine(config.load(vars(arguments))) as here:
        settings = here.settings
        try:
            options = slices.options_of(settings)
        except ValueError as error:
            raise errors.UsageError(str(error)) from error
        built, problems = slices.build(
            here.scan(),
            settings.driver_name,
            settings.node_name or os.uname().nodename,
            options,
        )

    # JSON and YAML have the form that the API server would get.
    version = versions.PREFERRED[0]
    items = [versions.slice_to_wire(slice_, version) for slice_ in built]
    if arguments.template:
        _print_template(items, arguments)
    elif arguments.output in ("json", "yaml"):
        output.print_document(
            {"apiVersion": "v1", "kind": "List", "items": items}, arguments.output
        )
    elif arguments.output == "wide":
        output.print_rows(_wide_table(built))
    else:
        output.print_rows(_narrow_table(built))
    for problem in problems:
        print(plain_text.plain_line(f"claimd: {problem}"), file=sys.stderr)
    return OK


# ---------------------------------------------------------------- templates


def _run_for_model(arguments: argparse.Namespace) -> int:
    """Runs the command for a machine of `claimd fake`, which is written into a temporary folder."""
    from claimd_devices import fake

    with tempfile.TemporaryDirectory(prefix="claimd-") as folder:
        try:
            fake.write(Path(folder) / "tree", fake.parse(arguments.template.split()))
        except ValueError as error:
            raise errors.UsageError(f"--template {arguments.template}: {error}") from error

        # The command now has a tree as its root, and prints its template.
        words = vars(arguments) | {"root": f"{folder}/tree", "template": "here"}
        return run(argparse.Namespace(**words))


async def _published_by_node(arguments: argparse.Namespace) -> list[Document]:
    """Returns the slices that all drivers of a live node publish. Raises Fatal without any."""
    # Only --template node:NAME asks an API server.
    from claimd.kubernetes.kube import auth, client
    from claimd.kubernetes.kube import errors as kube_errors

    from ..explain import sources

    name = arguments.template.removeprefix("node:")
    settings = config.load(vars(arguments))
    client_config = auth.as_kubectl(settings.kubeconfig, "", settings.service_account, os.environ)
    api = client.Client(client_config, agent="claimd-slices")
    try:
        objects = await sources.read_cluster(api, sources.Scope(everywhere=True))
    except kube_errors.ApiError as error:
        raise errors.Fatal(str(error)) from error
    finally:
        await api.close()

    slices = []
    for slice_ in objects.slices_for(None):
        if slice_.spec.node_name == name:
            slices.append(msgspec.to_builtins(slice_))
    if not slices:
        raise errors.Fatal(f"no driver has published a slice of a node {name!r}")
    return slices


def _print_template(items: list[Document], arguments: argparse.Namespace) -> None:
    pool = arguments.template.replace(":", "-") if arguments.template != "here" else "template"
    content = template.build(items, pool)
    annotations = template.cluster_api_annotations(content)
    form = "json" if arguments.output == "json" else "yaml"
    output.print_document(content | {"clusterAPI": {"annotations": annotations}}, form)


# ---------------------------------------------------------------- tables


def _narrow_table(built: list[ResourceSlice]) -> list[list[str]]:
    rows = [["SLICE", "DRIVER", "NODE", "POOL", "DEVICES"]]
    for slice_ in built:
        spec = slice_.spec
        name = slice_.metadata.name
        rows.append([name, spec.driver, spec.node_name, spec.pool.name, str(len(spec.devices))])
    return rows


def _wide_table(built: list[ResourceSlice]) -> list[list[str]]:
    rows = [["SLICE", "DEVICE", "ATTRIBUTE", "VALUE"]]
    for slice_ in built:
        for device in slice_.spec.devices:
            for name, value in _values_by_name(device).items():
                rows.append([slice_.metadata.name, device.name, name, output.cell(value)])
    return rows


def _values_by_name(device: Device) -> dict[str, object]:
    """Returns the device's attributes, capacities and consumed counters, by name."""
    facts: dict[str, object] = {}
    for name, attribute in device.attributes.items():
        facts[name] = attribute.value
    for name, capacity in device.capacity.items():
        facts[name] = capacity.value
    for consumption in device.consumes_counters:
        for name, counter in consumption.counters.items():
            facts[f"takes {name}"] = counter.value
    return facts
