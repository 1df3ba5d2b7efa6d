"""The kubelet: whether it is there, which one, and whether it knows us."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from claimd.common import errors, names, probe
from claimd.node.config import Config, key_of
from claimd.node.kubelet import podresources

from . import setting
from .check import KEEP_RUNNING, RESTART, Check, Finding, Level, follows
from .runtime import folder_trouble
from .sight import Sight

KUBELET_FOLDER = Check(
    name="kubelet-folder",
    level=Level.ERROR,
    looks_at="`plugins_registry` and our folder in `plugins`, below the setting `kubelet-dir`",
    expected="the kubelet's own folder, under the same path as on the host, writable",
    remedy="set `kubelet-dir` (CLAIMD_KUBELET_DIR, `kubeletDir` of the chart) to the folder that the "
    "kubelet has: its flag --root-dir, mostly /var/lib/kubelet; k0s /var/lib/k0s/kubelet, MicroK8s "
    "/var/snap/microk8s/common/var/lib/kubelet. The DaemonSet's volumes mount it under the same path",
)
SOCKET_PATH = Check(
    name="socket-path",
    level=Level.ERROR,
    looks_at="the length of our sockets' paths",
    expected="a path that a unix socket may have",
    remedy="shorten `kubelet-dir` or `driver-name`",
)
KUBELET_ANSWERS = Check(
    name="kubelet-answers",
    level=Level.ERROR,
    looks_at="a call to the kubelet at `pod-resources/kubelet.sock` below `kubelet-dir`",
    expected="a running kubelet whose folder is claimd's `kubelet-dir`",
    remedy="on the node see `systemctl status kubelet`, and if it runs, set `kubelet-dir` to its folder "
    f"(its flag --root-dir), then, while {KEEP_RUNNING},\n    {RESTART}",
)
KUBELET_VERSION = Check(
    name="kubelet-version",
    level=Level.ERROR,
    looks_at="the Node's `kubeletVersion`",
    expected="1.34 or later; 1.32 and 1.33 with the beta API",
    remedy="update the kubelet of the node",
)
CLAIMD_RUNS = Check(
    name="claimd-runs",
    level=Level.ERROR,
    looks_at="/livez at the setting `endpoint`, or whether somebody answers at our sockets",
    expected="a `claimd run` on this node",
    remedy="kubectl -n claimd-system get pods -o wide; kubectl -n claimd-system logs POD --previous",
)
REGISTERED = Check(
    name="registered",
    level=Level.ERROR,
    looks_at="/readyz at the setting `endpoint`",
    expected="ready: registered with the kubelet, our slices published",
    remedy="kubectl -n claimd-system logs POD says why",
)
DRA_SOCKET = Check(
    name="dra-socket",
    level=Level.ERROR,
    looks_at="the sockets in our folder, and in the kubelet's registry: whether somebody listens",
    expected="one of each, of a running claimd",
    remedy=f"delete the claimd pod of this node, the next one makes its sockets anew; "
    f"{KEEP_RUNNING}:\n    {RESTART}",
)
CHECKS = (
    KUBELET_FOLDER,
    SOCKET_PATH,
    KUBELET_ANSWERS,
    KUBELET_VERSION,
    CLAIMD_RUNS,
    REGISTERED,
    DRA_SOCKET,
)

# Kubelets whose troubles no driver can mend, with what happens: docs/compatibility.md.
_TROUBLES = {
    (1, 32): "with 1.32 a rolling update of the driver with two pods side by side loses the new "
    "one: use `maxSurge: 0`",
    (1, 33): "1.33 needs the feature gate DynamicResourceAllocation and the beta API",
}
_OLDEST = (1, 32)
# Where kubelets have their folder, if their command line does not say.
_FOLDERS = (
    "/var/lib/kubelet",
    "/var/lib/k0s/kubelet",
    "/var/snap/microk8s/common/var/lib/kubelet",
    "/var/lib/rancher/k3s/agent/kubelet",
)
_NOT_REGISTERED = "has not registered us"  # as /readyz says it
_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True)
class Facts:
    folder: str
    plugin_folder: str = ""
    folder_trouble: str = ""
    path_trouble: str = ""
    answer_trouble: str = ""
    elsewhere: str = ""  # a folder that is not ours and in which a kubelet answers
    version: str = ""  # empty: the Node could not be read
    endpoint: str = ""
    live: tuple[bool, str] | None = None  # None: there is no endpoint to ask
    ready: tuple[bool, str] | None = None
    # Our sockets, by file, and whether somebody listens.
    dra_sockets: tuple[tuple[str, bool], ...] = ()
    registration_sockets: tuple[tuple[str, bool], ...] = ()
    settings_place: setting.Place = field(default_factory=setting.Place)


def judge(facts: Facts) -> list[Finding]:
    if facts.path_trouble:
        path = SOCKET_PATH.failed(facts.path_trouble)
    else:
        path = SOCKET_PATH.well("short enough")
    return [_folder(facts), path, _answers(facts), judge_version(facts), *_claimd(facts)]


def _folder(facts: Facts) -> Finding:
    if facts.folder_trouble:
        return KUBELET_FOLDER.failed(facts.folder_trouble, remedy=_to_set(facts))
    return KUBELET_FOLDER.well(facts.folder)


def _answers(facts: Facts) -> Finding:
    if facts.answer_trouble:
        remedy = _to_set(facts)
        if facts.folder_trouble:
            remedy = follows(KUBELET_FOLDER.name)
        return KUBELET_ANSWERS.failed(facts.answer_trouble, remedy=remedy)
    return KUBELET_ANSWERS.well("it answers")


def _to_set(facts: Facts) -> str:
    """Where a kubelet was found in another folder; else what holds in general."""
    if not facts.elsewhere:
        return ""
    lines = [f"a kubelet answers in {facts.elsewhere}"]
    if facts.elsewhere != str(Config().kubelet_dir):
        lines.append(
            "in the DaemonSet change hostPath and mountPath of the volumes plugin, registry and "
            "pod-resources to that folder (with the chart, `kubeletDir` changes all)"
        )
    return "\n".join([*lines, facts.settings_place.to_set("kubelet_dir", facts.elsewhere)])


def judge_version(facts: Facts) -> Finding:
    if not facts.version:
        return KUBELET_VERSION.unseen(
            "the Node could not be read, which names it", "kubectl get node NODE -o wide"
        )
    number = version_of(facts.version)
    if number and number < _OLDEST:
        return KUBELET_VERSION.failed(f"the kubelet is {facts.version}")
    if number in _TROUBLES:
        return KUBELET_VERSION.failed(
            f"the kubelet is {facts.version}: {_TROUBLES[number]}", level=Level.WARNING
        )
    return KUBELET_VERSION.well(facts.version)


def version_of(text: str) -> tuple[int, int] | None:
    """Major and minor of v1.34.2; None if they cannot be told."""
    digits = re.match(r"v?([0-9]{1,6})\.([0-9]{1,6})", text)
    return (int(digits[1]), int(digits[2])) if digits else None


def _claimd(facts: Facts) -> list[Finding]:
    """Whether it runs and is ready, by its endpoint or by its sockets."""
    listening = [file for file, listens in facts.dra_sockets if listens]
    silent = [file for file, listens in facts.dra_sockets if not listens]
    registering = [file for file, listens in facts.registration_sockets if listens]

    if facts.live is not None:
        is_live, words = facts.live
        runs = CLAIMD_RUNS.well("it is alive") if is_live else CLAIMD_RUNS.failed(words)
    elif listening:
        is_live = True
        runs = CLAIMD_RUNS.well(f"somebody listens at {listening[0]}")
    else:
        is_live = False
        seen = f"there is no socket in {facts.plugin_folder}"
        if silent:
            seen = f"nobody listens at {facts.plugin_folder}/{silent[0]}"
        runs = CLAIMD_RUNS.failed(seen)

    # What follows would be so because it does not run: that is told already.
    if not is_live:
        why = "claimd does not run here"
        return [
            runs,
            REGISTERED.unseen(why, "once it runs"),
            DRA_SOCKET.unseen(why, "once it runs"),
        ]
    return [runs, _registered(facts), _sockets(facts, listening, registering)]


def _registered(facts: Facts) -> Finding:
    if facts.ready is None:
        return REGISTERED.unseen(
            "no endpoint is set, where claimd would be asked",
            f"give the one that `claimd run` has, such as --{key_of('endpoint')} :8081",
        )
    is_ready, words = facts.ready
    if is_ready:
        return REGISTERED.well("it is ready")
    remedy = ""
    if _NOT_REGISTERED in words and facts.answer_trouble:
        remedy = follows(KUBELET_ANSWERS.name)
    elif _NOT_REGISTERED in words:
        remedy = (
            f"the kubelet does not look into {facts.folder}/plugins_registry: set `kubelet-dir` to its "
            "folder (its flag --root-dir), mounted under the same path as on the host\n"
            "on the node: journalctl -u kubelet | grep -i plugin"
        )
    return REGISTERED.failed(words, remedy=remedy)


def _sockets(facts: Facts, listening: list[str], registering: list[str]) -> Finding:
    if facts.folder_trouble:
        return DRA_SOCKET.unseen(facts.folder_trouble, f"mend {KUBELET_FOLDER.name} first")
    if not listening:
        return DRA_SOCKET.failed(
            "nobody listens at a DRA socket of ours: the kubelet cannot call us"
        )
    if not registering:
        return DRA_SOCKET.failed(
            "nobody listens at a registration socket of ours: a kubelet that restarts will not find us"
        )
    return DRA_SOCKET.well(", ".join(listening))


# ---------------------------------------------------------------- looking


async def look(sight: Sight, version: str) -> Facts:
    """`version` as the Node has it, empty if it is not known."""
    settings = sight.settings
    folder = sight.place(settings.kubelet_dir)
    registry = folder / "plugins_registry"
    plugin = names.plugin_folder(folder, settings.driver_name)

    trouble = ""
    for place in (registry, plugin):
        host_path = settings.kubelet_dir / place.relative_to(folder)
        trouble = trouble or folder_trouble(str(place), str(host_path))

    live = ready = None
    if settings.endpoint:
        live = await asyncio.to_thread(probe.ask, settings.endpoint, "/livez", _SECONDS)
        ready = await asyncio.to_thread(probe.ask, settings.endpoint, "/readyz", _SECONDS)

    return Facts(
        folder=str(settings.kubelet_dir),
        plugin_folder=str(names.plugin_folder(settings.kubelet_dir, settings.driver_name)),
        folder_trouble=trouble,
        path_trouble=_path_trouble(settings),
        answer_trouble=await _answer_trouble(sight),
        elsewhere=_elsewhere(sight),
        settings_place=sight.settings_place,
        version=version,
        endpoint=settings.endpoint,
        live=live,
        ready=ready,
        dra_sockets=_listening(plugin, names.is_dra_socket),
        registration_sockets=_listening(
            registry, lambda name: names.is_registration_socket(name, settings.driver_name)
        ),
    )


def _elsewhere(sight: Sight) -> str:
    """A kubelet's folder that is not the one of the settings; empty if none is seen."""
    named = [flags.path("root-dir") for flags in sight.started("kubelet")]
    for folder in (*named, *_FOLDERS):
        if not folder:
            continue
        told, place = folder, sight.place(Path(folder))
        if sight.settings.root:
            # Of a tree that stands for a machine settings have the whole path.
            told = f"{sight.settings.root}{folder}"
            place = Path(told)
        is_ours = Path(told) == sight.settings.kubelet_dir
        if not is_ours and _listens(str(names.pod_resources_socket(place))):
            return told
    return ""


def _path_trouble(settings: Config) -> str:
    try:
        names.dra_socket(settings.kubelet_dir, settings.driver_name, settings.pod_uid)
        names.registration_socket(settings.kubelet_dir, settings.driver_name, settings.pod_uid)
    except errors.UsageError as error:
        return str(error)
    return ""


async def _answer_trouble(sight: Sight) -> str:
    folder = sight.place(sight.settings.kubelet_dir)
    path = names.pod_resources_socket(folder)
    shown = names.pod_resources_socket(sight.settings.kubelet_dir)
    if not path.exists():
        return f"there is no {shown}: no kubelet runs with this folder"
    if not _listens(str(path)):
        return f"nobody listens at {shown}: the kubelet does not run, or has another folder"
    try:
        await podresources.pods(path)
    except ConnectionError as error:
        return str(error)
    return ""


def _listening(folder: Path, is_ours: Callable[[str], bool]) -> tuple[tuple[str, bool], ...]:
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        return ()
    return tuple((entry, _listens(f"{folder}/{entry}")) for entry in entries if is_ours(entry))


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_SECONDS)
        try:
            connection.connect(path)
        except OSError:
            return False
        return True
