"""The command line: parses, calls, prints. Tables for people, JSON and YAML for tools. Nothing is
decided here.

Each subcommand loads what it needs and no more, so that `claimd probe` stays cheap and `claimd run`
small.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import __version__, config, errors, tables

if TYPE_CHECKING:
    from devices.gpu import Inventory

    from .explain.sources import Objects

OK, FAILED, USAGE = 0, 1, 2


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 done, 1 failed, 2 wrongly used. What went wrong is on stderr."""
    given = vars(_parser().parse_args(arguments))
    command: Callable[[config.Config, dict[str, Any]], int] = given.pop("command")
    try:
        with _replayed(config.load(given), given) as settings:
            return command(settings, given)
    except errors.UsageError as error:
        print(f"claimd: {error}", file=sys.stderr)
        return USAGE
    except errors.Fatal as error:
        print(f"claimd: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        return OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="claimd",
        description="One DRA driver for every GPU on a node, with no vendor library.",
        epilog="`claimd COMMAND --help` lists a command's settings.",
    )
    parser.add_argument("--version", action="version", version=f"claimd {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(
        name: str,
        command: Callable[[config.Config, dict[str, Any]], int],
        about: str,
        settings: bool = True,
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        added.set_defaults(command=command)
        if settings:
            config.add_flags(added)
        return added

    add("run", _run, "serve the kubelet: publish this node's GPUs and prepare claims")
    for name, command, about in (
        ("devices", _devices, "show the GPUs of this machine, and why others are left alone"),
        ("slices", _slices, "show the ResourceSlices that `claimd run` would publish"),
    ):
        add(name, command, about).add_argument(
            "-o",
            "--output",
            choices=("table", "wide", "json", "yaml"),
            default="table",
            help="default: table",
        )
    fake = add("fake", _fake, "write a tree of fake GPUs that `--root` can read")
    fake.add_argument(
        "folder", type=Path, help="an empty folder, a new one, or one that `claimd fake` wrote"
    )
    fake.add_argument(
        "gpus",
        nargs="*",
        metavar="VENDOR:MODEL[=COUNT]",
        help="such as nvidia:h100=4 amd:mi300x=2,mode=cpx or machine:dgx-h100; or an order to a tree that is there: "
        "ORDER DEVICE [VALUE], of unplug, plug, wedge, hot, aer, link, xid, eio, hang, renumber, heal",
    )
    convert = add(
        "convert",
        _convert,
        "write objects of resource.k8s.io in another version, and what is lost by it",
    )
    convert.add_argument(
        "-f", "--file", required=True, help="YAML or JSON, one document or several; - is stdin"
    )
    convert.add_argument(
        "--to",
        default="v1",
        metavar="VERSION",
        help="v1, v1beta2, v1beta1, v1alpha3, v1alpha3-1.31",
    )
    convert.add_argument(
        "-o", "--output", choices=("json", "yaml"), default="yaml", help="default: yaml"
    )
    capture = add(
        "capture",
        _capture,
        "write what claimd reads of this machine's GPUs into a file for `--root`",
    )
    capture.add_argument("file", type=Path, metavar="FILE.tar")
    capture.add_argument(
        "--redact",
        action="store_true",
        help="replace serial numbers and the names of build machines",
    )
    probe = add(
        "probe", _probe, "ask a running `claimd run` at its endpoint whether it is live or ready"
    )
    probe.add_argument("question", choices=("live", "ready"))
    explain = add("explain", _explain, "tell why a pod or a claim gets no devices, node by node")
    subject = explain.add_mutually_exclusive_group(required=True)
    subject.add_argument(
        "name", nargs="?", help="a pod or a claim; pod/NAME or claim/NAME where both exist"
    )
    subject.add_argument(
        "--dry", metavar="FILE", type=Path, help="a pod, claim or template that is not there yet"
    )
    subject.add_argument(
        "--class", dest="class_name", metavar="NAME", help="which devices a DeviceClass has"
    )
    explain.add_argument("-n", "--namespace", default="default", help="default: default")
    explain.add_argument("--node", default="", help="look at this node alone")
    explain.add_argument(
        "-f",
        "--file",
        action="append",
        type=Path,
        help="what `kubectl get -o yaml` wrote, instead of the API server",
    )
    explain.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="default: text"
    )
    _add_simulated(add)
    return parser


def _add_simulated(add: Callable[..., argparse.ArgumentParser]) -> None:
    """The commands that need no cluster, as they bring one."""
    sim = add(
        "sim",
        _sim,
        "serve an API server for tries and tests, with no cluster behind it",
        settings=False,
    )
    sim.add_argument(
        "--profile",
        default="1.37",
        help="the release to be like: 1.30, 1.31, 1.34 or 1.37 (default)",
    )
    sim.add_argument("--port", type=int, default=0, help="of 127.0.0.1; default: one that is free")
    sim.add_argument(
        "--db",
        type=Path,
        metavar="FILE",
        help="an SQLite file, so that the objects outlive the server",
    )
    sim.add_argument(
        "--kubeconfig",
        dest="kubeconfig_out",
        type=Path,
        metavar="FILE",
        help="written for kubectl once it serves",
    )
    demo = add(
        "demo",
        _demo,
        "tell a story on a simulated cluster: no root, no Docker, no GPU",
        settings=False,
    )
    demo.add_argument(
        "story",
        nargs="?",
        default="tour",
        help="a file, or the name of one that is here; default: tour",
    )
    demo.add_argument(
        "--serve", action="store_true", help="leave the cluster up, with a kubeconfig for kubectl"
    )
    demo.add_argument(
        "--plain", action="store_true", help="no picture that is redrawn, lines alone"
    )
    demo.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="keep the cluster in a folder, and go on with it later",
    )
    demo.add_argument(
        "--speed", type=float, metavar="N", help="2: texts stay for half as long; 0: no pauses"
    )


def _demo(settings: config.Config, given: dict[str, Any]) -> int:
    from .sim.demo import command

    command.run(
        command.Wish(
            **{name: given[name] for name in ("story", "state", "serve", "plain", "speed")}
        )
    )
    return OK


def _sim(settings: config.Config, given: dict[str, Any]) -> int:
    import asyncio

    from .sim.apiserver import command, kinds, server

    if given["profile"] not in kinds.RELEASES:
        raise errors.UsageError(
            f"profile {given['profile']!r}: expected one of {', '.join(kinds.RELEASES)}"
        )
    if not 0 <= given["port"] <= 65535:
        raise errors.UsageError(f"port {given['port']}: expected 0 to 65535")
    options = server.Options(
        profile=given["profile"], port=given["port"], db=given["db"], end_namespaces=True
    )
    asyncio.run(command.run(options, given["kubeconfig_out"]))
    return OK


def _explain(settings: config.Config, given: dict[str, Any]) -> int:
    import asyncio

    from .explain import pending, sources

    namespace, node = given["namespace"], given["node"]
    objects = (
        sources.from_files(given["file"])
        if given["file"]
        else asyncio.run(_objects(settings, namespace))
    )
    if given["class_name"]:
        found = pending.of_class(objects, given["class_name"], node=node)
    elif given["dry"]:
        made = sources.from_files([given["dry"]], namespace)
        objects.put(made)
        found = pending.report(objects, pending.would_be(made), node=node, new=True)
    else:
        found = pending.report(objects, pending.find(objects, given["name"], namespace), node=node)
    if given["output"] == "json":
        tables.data(pending.as_data(found), "json")
    else:
        print(pending.as_text(found), end="")
    return OK


async def _objects(settings: config.Config, namespace: str) -> Objects:
    import os

    from .explain import sources
    from .kube import auth, client
    from .kube import errors as refusals

    kubeconfig = settings.kubeconfig or os.environ.get("KUBECONFIG", "")
    api = client.Client(
        auth.client_config(kubeconfig, settings.service_account), agent="claimd-explain"
    )
    try:
        return await sources.from_cluster(api, namespace)
    except refusals.ApiError as error:
        raise errors.Fatal(str(error)) from error
    finally:
        await api.close()


def _run(settings: config.Config, given: dict[str, Any]) -> int:
    import asyncio

    from . import app, log
    from .kube import lookup

    log.set_up(settings.log_level, settings.log_format)
    with asyncio.Runner(loop_factory=lookup.Loop) as runner:
        runner.run(app.build(settings).run())
    return OK


def _devices(settings: config.Config, given: dict[str, Any]) -> int:
    inventory = _scan(settings, given)
    if given["output"] in ("json", "yaml"):
        tables.data(
            {
                "gpus": [tables.plain(gpu) for gpu in inventory.gpus],
                "skipped": [tables.plain(s) for s in inventory.skipped],
            },
            given["output"],
        )
        return OK
    wide = given["output"] == "wide"
    if inventory.gpus:
        tables.gpus(tables.WIDE if wide else tables.NARROW, inventory.gpus)
    else:
        print(f"no GPUs found under {settings.roots.sys}")
    for skipped in inventory.skipped:
        print(f"left alone: {skipped.address}: {skipped.reason}")
    for gpu in inventory.gpus if wide else ():
        if gpu.libraries:
            print(f"{gpu.name}: libraries: {gpu.libraries.reason}")
        for note in gpu.notes:
            print(f"{gpu.name}: {note}")
    if wide:
        _print_health(settings, inventory)
    return OK


def _print_health(settings: config.Config, inventory: Inventory) -> None:
    """What one look can tell, with what a `claimd run` on this machine knows: that looks again and
    again.
    """
    from devices import monitor
    from devices.health import HealthState

    from . import names, timestamps
    from .report import health_state

    folder = names.plugin_folder(settings.kubelet_dir, settings.driver_name)
    try:
        known = health_state.read(folder, health_state.boot_id(settings.roots))
    except (OSError, ValueError) as error:
        print(f"not known: what a running claimd has seen: {error}")
        known = HealthState()
    report = monitor.check_once(settings.roots, inventory, known)
    for name, findings in report.findings:
        for finding in findings:
            since = f" (since {timestamps.rfc3339(finding.since)})" if finding.since else ""
            print(f"{name}: {finding.severity}: {finding.sentence}{since}")
    for missing in report.unwatched:
        print(f"not watched: {missing}")


def _slices(settings: config.Config, given: dict[str, Any]) -> int:
    import os

    from .api import versions
    from .publish import slices

    inventory = _scan(settings, given)
    options = slices.Options(numa_list=settings.numa_list)
    built, problems = slices.build(
        inventory, settings.driver_name, settings.node_name or os.uname().nodename, options
    )
    if given["output"] in ("json", "yaml"):
        items = [versions.slice_to_wire(slice_, versions.PREFERRED[0]) for slice_ in built]
        tables.data({"apiVersion": "v1", "kind": "List", "items": items}, given["output"])
    elif given["output"] == "wide":
        rows = [["SLICE", "DEVICE", "ATTRIBUTE", "VALUE"]]
        for slice_ in built:
            for device in slice_.spec.devices:
                facts = {name: attribute.value for name, attribute in device.attributes.items()}
                facts |= {name: capacity.value for name, capacity in device.capacity.items()}
                facts |= {
                    f"takes {name}": taken.value
                    for use in device.consumes_counters
                    for name, taken in use.counters.items()
                }
                rows += [
                    [slice_.metadata.name, device.name, name, tables.cell(value)]
                    for name, value in facts.items()
                ]
        tables.rows(rows)
    else:
        rows = [["SLICE", "DRIVER", "NODE", "POOL", "DEVICES"]]
        for slice_ in built:
            spec = slice_.spec
            rows.append(
                [
                    slice_.metadata.name,
                    spec.driver,
                    spec.node_name,
                    spec.pool.name,
                    str(len(spec.devices)),
                ]
            )
        tables.rows(rows)
    for problem in problems:
        print(f"claimd: {problem}", file=sys.stderr)
    return OK


def _fake(settings: config.Config, given: dict[str, Any]) -> int:
    from devices import fake, faults

    folder, words = given["folder"], given["gpus"]
    if words and words[0] in faults.FAULTS:
        if not 2 <= len(words) <= 3:
            raise errors.UsageError(
                f"an order is {words[0]} DEVICE [VALUE], such as {words[0]} 0000:11:00.0"
            )
        try:
            faults.inject(folder, *words)
        except ValueError as error:
            raise errors.UsageError(str(error)) from error
        except OSError as error:
            raise errors.Fatal(f"cannot change the fake tree: {error}") from error
        print(f"done: {' '.join(words)}")
        return OK
    try:
        wrote = fake.write(folder, fake.parse(words))
        faults.enable(folder)
    except ValueError as error:
        raise errors.UsageError(str(error)) from error
    except OSError as error:
        raise errors.Fatal(f"cannot write the fake tree: {error}") from error
    done = "wrote" if wrote else "nothing to change in"
    print(f"{done} {folder}; look at it with: claimd devices --root {folder}")
    return OK


def _convert(settings: config.Config, given: dict[str, Any]) -> int:
    from .api import text
    from .api.objects import convert

    try:
        found = sys.stdin.read() if given["file"] == "-" else Path(given["file"]).read_text()
        documents = text.load_all(found)
    except (OSError, ValueError) as error:
        raise errors.Fatal(f"cannot read {given['file']}: {error}") from error
    made = []
    for number, document in enumerate(documents, start=1):
        name = convert.name_of(document) or f"document {number}"
        try:
            converted = convert.convert(document, given["to"], documents)
        except ValueError as error:
            raise errors.Fatal(f"{name}: {error}") from error
        made += [converted.document] if converted.document is not None else []
        for note in converted.notes:
            print(f"claimd: {name}: {note}", file=sys.stderr)
    if given["output"] == "yaml":
        print("---\n".join(text.dump_yaml(document) for document in made), end="")
    else:
        tables.data(
            made[0] if len(made) == 1 else {"apiVersion": "v1", "kind": "List", "items": made},
            "json",
        )
    return OK


def _capture(settings: config.Config, given: dict[str, Any]) -> int:
    from devices import capture, monitor

    def look() -> Inventory:
        inventory = _scan(settings, given)
        monitor.check_once(settings.roots, inventory)  # what tells of health belongs to it
        return inventory

    file = given["file"]
    try:
        inventory, count = capture.write(file, settings.roots, look, redact=given["redact"])
    except OSError as error:
        raise errors.Fatal(f"cannot write {file}: {error.strerror or error}") from error
    serials = "" if given["redact"] else "; it has serial numbers, which --redact replaces"
    print(f"wrote {file}: {len(inventory.gpus)} GPUs, {count} files{serials}")
    return OK


def _probe(settings: config.Config, given: dict[str, Any]) -> int:
    from . import probe

    if not settings.endpoint:
        raise errors.UsageError(
            "endpoint is not set; give the one that `claimd run` has, such as --endpoint :8081"
        )
    yes, words = probe.ask(settings.endpoint, f"/{given['question']}z")
    print(words, file=sys.stdout if yes else sys.stderr)
    return OK if yes else FAILED


@contextlib.contextmanager
def _replayed(settings: config.Config, given: dict[str, Any]) -> Iterator[config.Config]:
    """The settings with a captured machine put down as trees, as long as the command runs, where
    root is a capture.
    """
    if not settings.root or not Path(settings.root).is_file():
        yield settings
        return
    import dataclasses
    import tempfile

    from devices import capture

    with tempfile.TemporaryDirectory(prefix="claimd-") as folder:
        try:
            given["replay"] = capture.read(Path(settings.root), Path(folder))
        except (ValueError, OSError) as error:
            raise errors.UsageError(str(error)) from error
        try:
            yield dataclasses.replace(settings, root=folder)
        finally:
            capture.stop_replay()


def _scan(settings: config.Config, given: dict[str, Any]) -> Inventory:
    from devices import scan

    try:
        scan.check_rules(settings.rules)
    except ValueError as error:
        raise errors.UsageError(str(error)) from error
    if settings.root and not Path(settings.root).is_dir():
        raise errors.Fatal(
            f"{settings.root}: there is no such folder or capture; `claimd fake` writes one, or `capture`"
        )
    inventory = scan.scan(settings.roots, settings.rules)
    replay = given.get("replay")
    return replay.with_original_paths(inventory) if replay else inventory
