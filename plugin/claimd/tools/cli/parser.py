"""The grammar of the command line: every command with its options and the settings that it uses.

The module parses the arguments and reports wrong use. The module named after a command runs it.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claimd import __version__
from claimd.node import config

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[Any]

# The settings of each command, by field of Config. `run` has all of them.
_HARDWARE = (
    "root",
    "sys_root",
    "proc_root",
    "dev_root",
    "host_root",
    "nvidia_driver_root",
    "nvml",
    "include",
    "exclude",
    "vfio",
    "vfio_bind",
)
SETTINGS = {
    "run": config.NAMES,
    "devices": (*_HARDWARE, "driver_name", "kubelet_dir", "share"),
    "slices": (
        *_HARDWARE,
        "driver_name",
        "node_name",
        "numa_list",
        "share",
        "require_libraries",
        "prepare_before_bind",
        "kubeconfig",
        "service_account",
    ),
    "clear": (*_HARDWARE, "driver_name", "kubelet_dir"),
    "capture": _HARDWARE,
    "probe": ("endpoint",),
    "explain": ("kubeconfig", "service_account"),
    "view": ("kubeconfig", "service_account"),
    "doctor": config.NAMES,
}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the arguments as attributes, and the command's name as `command`.

    A setting without a flag has no attribute, so that the environment and the file count. If the
    arguments cannot be understood, argparse ends the program with exit code 2, or a UsageError is
    raised.
    """
    spelt_out = _with_fake_command(arguments)
    spelt_out, words = _split_at_sim_command(spelt_out)

    # Only the grammar of the command that is named is built.
    parsed = _build(spelt_out[0] if spelt_out else "").parse_args(spelt_out)
    if words is not None:
        parsed.words = words
    return parsed


def _split_at_sim_command(
    arguments: Sequence[str],
) -> tuple[Sequence[str], Sequence[str] | None]:
    """Splits `claimd sim … -- COMMAND …` at the first `--`. A later `--` belongs to the command.

    The second part is None if there is no `--`, or if it is another command of claimd.
    """
    if not arguments or arguments[0] != "sim" or "--" not in arguments:
        return arguments, None
    place = list(arguments).index("--")
    return arguments[:place], arguments[place + 1 :]


def _with_fake_command(arguments: Sequence[str]) -> Sequence[str]:
    """Inserts `write` or `fault` into `claimd fake FOLDER …`, the form of older manifests."""
    if len(arguments) < 2 or arguments[0] != "fake":
        return arguments
    if arguments[1].startswith("-") or arguments[1] in ("write", "fault"):
        return arguments

    folder, *words = arguments[1:]
    # A model is written vendor:model, and an option of a machine name=value. A fault has neither.
    is_fault = bool(words) and ":" not in words[0] and "=" not in words[0]
    command = "fault" if is_fault else "write"
    print(f"claimd: `claimd fake FOLDER …` is now: claimd fake {command} FOLDER …", file=sys.stderr)
    return ["fake", command, folder, *words]


def _build(command: str) -> argparse.ArgumentParser:
    """Returns the grammar of one command, or of all if there is no such command.

    All of them are needed for the help and for the error about an unknown command. To build them
    takes as long as the answer to a probe, so no other start pays for it.
    """
    parser = argparse.ArgumentParser(
        prog="claimd",
        description="One DRA driver for every GPU on a node, with no vendor library.",
        epilog="`claimd COMMAND --help` lists a command's settings.",
        formatter_class=_Formatter,
    )
    parser.add_argument("--version", action="version", version=f"claimd {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    # The help lists them in this order.
    adders = {
        "run": _add_run,
        "devices": _add_devices,
        "slices": _add_slices,
        "fake": _add_fake,
        "clear": _add_clear,
        "convert": _add_convert,
        "capture": _add_capture,
        "probe": _add_probe,
        "explain": _add_explain,
        "doctor": _add_doctor,
        "view": _add_view,
        "sim": _add_sim,
        "demo": _add_demo,
    }
    chosen = [adders[command]] if command in adders else list(adders.values())
    for add in chosen:
        add(commands)
    return parser


class _Formatter(argparse.HelpFormatter):
    """A help formatter that is as wide as the terminal.

    argparse would ask shutil for the width as soon as a formatter is made, which every command
    does. To load shutil takes four milliseconds of each start and each probe.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    setting = os.environ.get("COLUMNS", "")
    if setting.isdecimal() and int(setting) > 0:
        return int(setting)

    # stdout may be a file, closed, or replaced by an object without a file number.
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


def _add(commands: Commands, name: str, about: str, within: str = "") -> argparse.ArgumentParser:
    added: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=f"{about[0].upper()}{about[1:]}.",
        formatter_class=_Formatter,
    )
    command = f"{within} {name}".strip()
    added.set_defaults(command=command)

    # Each setting that the command uses is a flag of it.
    if command in SETTINGS:
        config.add_flags(added, SETTINGS[command])
    return added


def _add_run(commands: Commands) -> None:
    _add(commands, "run", "serve the kubelet: publish this node's GPUs and prepare claims")


def _add_devices(commands: Commands) -> None:
    about = "show the GPUs of this machine, and why claimd does not use the others"
    _add_output(_add(commands, "devices", about))


def _add_clear(commands: Commands) -> None:
    about = "forget what was reported about a GPU, after you have repaired or reset it"
    clear = _add(commands, "clear", about)
    clear.add_argument("device", metavar="DEVICE", help="a name that `claimd devices` prints")
    clear.add_argument("--by", default="", metavar="NAME", help="your name, for the log")
    clear.add_argument("--reason", default="", metavar="TEXT", help="the reason, for the log")


def _add_slices(commands: Commands) -> None:
    about = "show the ResourceSlices that `claimd run` would publish"
    slices = _add(commands, "slices", about)
    _add_output(slices)
    slices.add_argument(
        "--template",
        nargs="?",
        const="here",
        default="",
        metavar="WHAT",
        help="print what autoscalers must know about nodes that do not exist yet, in YAML or JSON. "
        "WHAT is a machine (machine:dgx-h100, or models as for `claimd fake write`, in quotes) or "
        "an existing node (node:NAME); default: the machine of this command. See "
        "docs/autoscalers.md",
    )


def _add_output(
    command: argparse.ArgumentParser,
    forms: Sequence[str] = ("table", "wide", "json", "yaml"),
    about: str = "",
) -> None:
    """Adds the option for the form of the output. The first form is the default."""
    command.add_argument(
        "-o",
        "--output",
        choices=forms,
        default=forms[0],
        help=f"{about} (default: {forms[0]})" if about else f"default: {forms[0]}",
    )


def _add_context(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--context",
        default="",
        metavar="NAME",
        help="a context of the kubeconfig; default: its current context",
    )


def _add_files(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-f",
        "--file",
        action="append",
        type=Path,
        help="read the output of `kubectl get -o yaml` or `-o json` instead of the API server: a file, "
        "a folder of such files, or - for standard input",
    )


def _add_fake(commands: Commands) -> None:
    fake = _add(commands, "fake", "write a tree of fake GPUs that `--root` can read")
    actions = fake.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=_ListingParser
    )

    write = _add(actions, "write", "write a tree, or replace one", within="fake")
    write.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        help="an empty folder, a new one, or one that `claimd fake` wrote",
    )
    write.add_argument(
        "gpus",
        nargs="*",
        metavar="MODEL[=COUNT][,OPTION…]",
        help="such as nvidia:h100=4 amd:mi300x=2,mode=cpx; or a machine, such as machine:dgx-h100",
    )
    write.set_defaults(listing=_fake_models)

    fault = _add(
        actions,
        "fault",
        "make a GPU of a tree sick, or well again, while claimd reads the tree",
        within="fake",
    )
    fault.add_argument(
        "folder", type=Path, metavar="FOLDER", help="a folder that `claimd fake write` wrote"
    )
    fault.add_argument("fault", metavar="FAULT", help="a fault of the list below")
    fault.add_argument("device", metavar="DEVICE", help="a name that `claimd devices` prints")
    fault.add_argument(
        "value", nargs="?", default="", metavar="VALUE", help="the value, if the fault has one"
    )
    fault.set_defaults(listing=_faults)


class _ListingParser(argparse.ArgumentParser):
    """A parser whose help ends with lists. They are made only when the help is printed."""

    def format_help(self) -> str:
        listing: Callable[[], dict[str, dict[str, str]]] = self.get_default("listing")
        lines = []
        for title, rows in listing().items():
            width = max(map(len, rows))
            lines += ["", f"{title}:"]
            for name, sentence in rows.items():
                lines.append(f"  {name:{width}}  {sentence}")
        return super().format_help() + "\n".join(lines) + "\n"


def _fake_models() -> dict[str, dict[str, str]]:
    from claimd_devices import fake

    return {
        "models": fake.models(),
        "options of a model": fake.OPTIONS,
        "options of the whole machine": fake.MACHINE_OPTIONS,
        "machines": fake.machines(),
    }


def _faults() -> dict[str, dict[str, str]]:
    from claimd_devices import faults

    rows = {}
    for fault in faults.FAULTS.values():
        value = f"; VALUE is {fault.value}" if fault.value else ""
        rows[fault.name] = f"{fault.sentence}{value}"
    return {"faults": rows}


def _add_convert(commands: Commands) -> None:
    convert = _add(
        commands,
        "convert",
        "write objects of resource.k8s.io in another version, and list what is lost",
    )
    convert.add_argument(
        "-f",
        "--file",
        required=True,
        help="YAML or JSON, or a folder of such files; - is standard input",
    )
    convert.add_argument(
        "--to",
        default="v1",
        metavar="VERSION",
        help="v1, v1beta2, v1beta1, v1alpha3, v1alpha3-1.31",
    )
    convert.add_argument(
        "--strict", action="store_true", help="write nothing, and exit 1, if anything would be lost"
    )
    _add_output(convert, ("yaml", "json"))


def _add_capture(commands: Commands) -> None:
    capture = _add(
        commands,
        "capture",
        "write everything that claimd reads about this machine's GPUs into a file for `--root`",
    )
    capture.add_argument("file", type=Path, metavar="FILE.tar")
    capture.add_argument(
        "--redact",
        action="store_true",
        help="replace serial numbers and the names of build machines",
    )


def _add_probe(commands: Commands) -> None:
    probe = _add(
        commands,
        "probe",
        "ask the endpoint of a running `claimd run` whether it is live or ready",
    )
    probe.add_argument("question", choices=("live", "ready"))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"expected seconds above 0, got {text!r}")
    return seconds


def _add_explain(commands: Commands) -> None:
    explain = _add(commands, "explain", "say why a pod or a claim gets no devices, node by node")
    subject = explain.add_mutually_exclusive_group(required=True)
    subject.add_argument(
        "name", nargs="?", help="a pod or a claim; write pod/NAME or claim/NAME if both exist"
    )
    subject.add_argument(
        "--dry",
        metavar="FILE",
        type=Path,
        help="a manifest of objects that do not exist yet: a pod, a workload such as a Deployment, a "
        "claim or a template",
    )
    subject.add_argument(
        "--class", dest="class_name", metavar="NAME", help="which devices a DeviceClass selects"
    )
    subject.add_argument(
        "--pending", action="store_true", help="all pods that wait for a node, grouped by cause"
    )
    explain.add_argument("-n", "--namespace", default="default", help="default: default")
    explain.add_argument(
        "-A", "--all-namespaces", action="store_true", help="with --pending: in all namespaces"
    )
    explain.add_argument("--node", default="", help="look only at this node")
    explain.add_argument(
        "--without",
        action="append",
        metavar="claim/NAME",
        help="as if that claim, or pod/NAME, did not exist; may be repeated",
    )
    explain.add_argument(
        "--as-if-free",
        action="append",
        metavar="NODE",
        help="as if this node ran no pods, and no claim had its devices; may be repeated",
    )
    explain.add_argument(
        "--on",
        default="",
        metavar="NODE",
        help="as if the pod had to run on this node, whatever nodes it selects",
    )
    explain.add_argument(
        "--watch",
        action="store_true",
        help="print each new answer, until the pod has a node",
    )
    explain.add_argument(
        "--timeout",
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="answer `unknown` for nodes that are not decided within this processor time, or three times "
        "as much on a busy machine (default 10, the scheduler's own limit for a node)",
    )
    _add_context(explain)
    _add_files(explain)
    _add_output(explain, ("text", "wide", "json"), "wide: every node, as with --all")
    explain.add_argument("--all", action="store_true", help="list every node instead of groups")


def _add_doctor(commands: Commands) -> None:
    doctor = _add(
        commands, "doctor", "say what keeps this node's GPUs from working, and what to do"
    )
    doctor.add_argument(
        "--cluster",
        action="store_true",
        help="check all nodes from outside, with an administrator's kubeconfig",
    )
    _add_output(doctor, ("table", "wide", "json"), "wide: also checks that are well, as with --all")
    doctor.add_argument("--all", action="store_true", help="also list checks that are well")
    doctor.add_argument(
        "--timeout",
        type=_seconds,
        default=120.0,
        metavar="SECONDS",
        help="end by then, even if a check is still waiting (default 120)",
    )
    _add_context(doctor)


def _add_view(commands: Commands) -> None:
    view = _add(
        commands, "view", "show a cluster's GPUs in a browser: their users, and which pods wait"
    )
    _add_files(view)
    _add_context(view)
    view.add_argument(
        "--port", type=int, default=0, help="a port of 127.0.0.1; default: a free port"
    )
    _add_output(view, ("page", "table", "json"), "table, json: print the devices once")
    view.add_argument(
        "--prometheus",
        metavar="URL",
        default="",
        help="show how many GPUs were free, held and sick in the last day, from claimd's metrics",
    )
    view.add_argument("--open", action="store_true", help="open the page in the browser")


def _add_sim(commands: Commands) -> None:
    sim = _add(
        commands, "sim", "run a simulated API server, or a simulated cluster around a command"
    )
    sim.usage = "claimd sim [OPTION …] [-- COMMAND …]"
    sim.epilog = (
        "A COMMAND runs with KUBECONFIG set. Its exit code becomes that of claimd, and the processes "
        "that it leaves behind are ended. Example: claimd sim --node a=nvidia:h100=2 -- go test ./..."
    )
    sim.set_defaults(words=None)
    sim.add_argument(
        "--node",
        action="append",
        default=[],
        metavar="NAME[=GPUS]",
        help="add a node to the cluster of a COMMAND; may be repeated. The cluster has a scheduler and "
        "controllers, and its kubelets run pods as processes of yours. On a node with GPUs "
        "(a=nvidia:h100=2, b=machine:dgx-h100) claimd runs; one without GPUs waits for your own driver",
    )
    sim.add_argument(
        "--profile",
        default="1.37",
        help="the Kubernetes release to simulate: 1.30, 1.31, and 1.34 to 1.38; 1.37 is the default",
    )
    sim.add_argument(
        "--port", type=int, default=0, help="a port of 127.0.0.1; default: a free port"
    )
    sim.add_argument(
        "--http",
        action="store_true",
        help="serve without TLS, and with the token in the address, where logs show it",
    )
    sim.add_argument(
        "--db",
        type=Path,
        metavar="FILE",
        help="keep the objects in an SQLite file after the end of the server",
    )
    sim.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="write a kubeconfig for kubectl when the server is ready",
    )
    _add_programs(sim)


def _add_demo(commands: Commands) -> None:
    demo = _add(
        commands, "demo", "play a story on a simulated cluster, without root, Docker or a GPU"
    )
    demo.epilog = (
        "Containers run as plain processes with the rights of the user who starts the demo. Do not run "
        "a story or apply a pod whose commands you would not type yourself."
    )
    demo.add_argument(
        "story",
        nargs="?",
        default="tour",
        help="a file, or the name of a story of claimd; default: tour",
    )
    demo.add_argument(
        "--profile",
        default="1.37",
        help="the Kubernetes release to simulate, 1.34 to 1.38; 1.37 is the default",
    )
    demo.add_argument(
        "--serve",
        action="store_true",
        help="keep the cluster running afterwards, with a kubeconfig for kubectl",
    )
    demo.add_argument(
        "--plain", action="store_true", help="print only lines, without the picture that is redrawn"
    )
    demo.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="keep the cluster in a folder, where a later demo continues",
    )
    demo.add_argument(
        "--speed", type=float, metavar="N", help="2: show texts half as long; 0: without pauses"
    )
    _add_programs(demo)


def _add_programs(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--scheduler",
        default="",
        metavar="PATH",
        help="use this kube-scheduler instead of the cluster's own scheduler",
    )
    command.add_argument(
        "--controllers",
        default="",
        metavar="PATH",
        help="use this kube-controller-manager instead of the cluster's own controllers",
    )
    command.add_argument(
        "--binding-timeout",
        type=float,
        metavar="SECONDS",
        help="how long the scheduler waits for devices with binding conditions; default: 600",
    )
