"""Checks of the kubelet: it runs, its release is supported, and it has registered claimd."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from claimd.common import errors, names, probe
from claimd.node.config import Config, key_of
from claimd.node.kubelet import podresources

from . import setting
from .check import KEEP_RUNNING, RESTART, Check, Finding, Level, caused_by
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
    remedy=f"delete the claimd pod of this node, the next one makes new sockets; "
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

# Releases with faults that no driver can repair (docs/compatibility.md).
_TROUBLES = {
    (1, 32): "with 1.32 a rolling update of the driver with two pods side by side loses the new "
    "one: use `maxSurge: 0`",
    (1, 33): "1.33 needs the feature gate DynamicResourceAllocation and the beta API",
}
_OLDEST = (1, 32)
# The folders of kubelets whose command line does not name one.
_FOLDERS = (
    "/var/lib/kubelet",
    "/var/lib/k0s/kubelet",
    "/var/snap/microk8s/common/var/lib/kubelet",
    "/var/lib/rancher/k3s/agent/kubelet",
)
_NOT_REGISTERED = "has not registered us"  # a part of the answer of /readyz
_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The state of the kubelet and of claimd's sockets. Paths are the host's."""

    folder: str
    plugin_folder: str = ""
    folder_trouble: str = ""
    path_trouble: str = ""
    answer_trouble: str = ""
    elsewhere: str = ""  # another folder, of those that kubelets mostly have, in which one answers
    named: str = ""  # another folder, which a running kubelet names
    version: str = ""  # empty: the Node could not be read
    endpoint: str = ""
    # The answers to both probes. None: there is no endpoint to ask.
    live: tuple[bool, str] | None = None
    ready: tuple[bool, str] | None = None
    # The file names of our sockets, and True for each with a listener.
    dra_sockets: tuple[tuple[str, bool], ...] = ()
    registration_sockets: tuple[tuple[str, bool], ...] = ()
    settings_place: setting.Place = field(default_factory=setting.Place)


def judge(facts: Facts) -> list[Finding]:
    """Judges the kubelet of this node, and whether claimd runs and is registered."""
    path = SOCKET_PATH.success("short enough")
    if facts.path_trouble:
        path = SOCKET_PATH.failure(facts.path_trouble)
    return [
        _judge_folder(facts),
        path,
        _judge_answer(facts),
        judge_version(facts),
        *_judge_claimd(facts),
    ]


def _judge_folder(facts: Facts) -> Finding:
    if facts.folder_trouble:
        seen = f"{facts.folder_trouble}{_named_folder(facts)}"
        return KUBELET_FOLDER.failure(seen, remedy=_remedy_for_folder(facts))
    return KUBELET_FOLDER.success(facts.folder)


def _judge_answer(facts: Facts) -> Finding:
    if facts.answer_trouble:
        remedy = _remedy_for_folder(facts)
        if facts.folder_trouble:
            remedy = caused_by(KUBELET_FOLDER.name)
        seen = f"{facts.answer_trouble}{_named_folder(facts)}"
        return KUBELET_ANSWERS.failure(seen, remedy=remedy)
    return KUBELET_ANSWERS.success("it answers")


def _named_folder(facts: Facts) -> str:
    """Returns a sentence with the folder that a running kubelet names. It is not in a remedy."""
    if not facts.named:
        return ""
    return f"; the kubelet that runs here was started with --root-dir {facts.named}"


def _remedy_for_folder(facts: Facts) -> str:
    """Returns the steps to use another folder in which a kubelet answers.

    Returns "", for the general remedy, if no other folder has one.
    """
    if not facts.elsewhere:
        return ""

    lines = [f"a kubelet answers in {facts.elsewhere}"]
    if facts.elsewhere != str(Config().kubelet_dir):
        lines.append(
            "in the DaemonSet change hostPath and mountPath of the volumes plugin, registry and "
            "pod-resources to that folder (with the chart, `kubeletDir` changes all)"
        )
    return "\n".join([*lines, facts.settings_place.steps_to_set("kubelet_dir", facts.elsewhere)])


def judge_version(facts: Facts) -> Finding:
    """Judges the kubelet's release."""
    if not facts.version:
        return KUBELET_VERSION.unknown(
            "the Node could not be read, which names it", "kubectl get node NODE -o wide"
        )

    number = version_of(facts.version)
    if number and number < _OLDEST:
        return KUBELET_VERSION.failure(f"the kubelet is {facts.version}")
    if number in _TROUBLES:
        return KUBELET_VERSION.failure(
            f"the kubelet is {facts.version}: {_TROUBLES[number]}", level=Level.WARNING
        )
    return KUBELET_VERSION.success(facts.version)


def version_of(text: str) -> tuple[int, int] | None:
    """Returns major and minor of a version such as v1.34.2, or None if they are not there."""
    digits = re.match(r"v?([0-9]{1,6})\.([0-9]{1,6})", text)
    return (int(digits[1]), int(digits[2])) if digits else None


def _split_sockets(sockets: Iterable[tuple[str, bool]]) -> tuple[list[str], list[str]]:
    """Returns the files of the sockets that have a listener, and of those that have none."""
    listening, silent = [], []
    for file, has_listener in sockets:
        if has_listener:
            listening.append(file)
        else:
            silent.append(file)
    return listening, silent


def _judge_claimd(facts: Facts) -> list[Finding]:
    """Judges whether claimd runs, is registered, and has its sockets."""
    listening, silent = _split_sockets(facts.dra_sockets)
    registering, _ = _split_sockets(facts.registration_sockets)

    # The endpoint knows best. Without one, a listener at a DRA socket shows that claimd runs.
    if facts.live is not None:
        is_live, words = facts.live
        runs = CLAIMD_RUNS.success("it is alive") if is_live else CLAIMD_RUNS.failure(words)
    elif listening:
        is_live = True
        runs = CLAIMD_RUNS.success(f"somebody listens at {listening[0]}")
    else:
        is_live = False
        seen = f"there is no socket in {facts.plugin_folder}"
        if silent:
            seen = f"nobody listens at {facts.plugin_folder}/{silent[0]}"
        runs = CLAIMD_RUNS.failure(seen)

    # The other checks would fail only because claimd is not running, which is reported above.
    if not is_live:
        why = "claimd does not run here"
        return [
            runs,
            REGISTERED.unknown(why, "once it runs"),
            DRA_SOCKET.unknown(why, "once it runs"),
        ]
    return [runs, _judge_registration(facts), _judge_sockets(facts, listening, registering)]


def _judge_registration(facts: Facts) -> Finding:
    if facts.ready is None:
        return REGISTERED.unknown(
            "no endpoint is set, where claimd would be asked",
            f"give the one that `claimd run` has, such as --{key_of('endpoint')} :8081",
        )
    is_ready, words = facts.ready
    if is_ready:
        return REGISTERED.success("it is ready")

    # A kubelet that gives no answer cannot register anybody.
    remedy = ""
    if _NOT_REGISTERED in words and facts.answer_trouble:
        remedy = caused_by(KUBELET_ANSWERS.name)
    elif _NOT_REGISTERED in words:
        remedy = (
            f"the kubelet does not look into {facts.folder}/plugins_registry: set `kubelet-dir` to its "
            "folder (its flag --root-dir), mounted under the same path as on the host\n"
            "on the node: journalctl -u kubelet | grep -i plugin"
        )
    return REGISTERED.failure(words, remedy=remedy)


def _judge_sockets(facts: Facts, listening: list[str], registering: list[str]) -> Finding:
    if facts.folder_trouble:
        return DRA_SOCKET.unknown(facts.folder_trouble, f"mend {KUBELET_FOLDER.name} first")
    if not listening:
        return DRA_SOCKET.failure(
            "nobody listens at a DRA socket of ours: the kubelet cannot call us"
        )
    if not registering:
        return DRA_SOCKET.failure(
            "nobody listens at a registration socket of ours: a kubelet that restarts will not find us"
        )
    return DRA_SOCKET.success(", ".join(listening))


# ---------------------------------------------------------------- looking


async def look(sight: Sight, version: str) -> Facts:
    """Reads the kubelet's folders and sockets, and asks claimd's endpoint.

    `version` is the kubelet's version in the Node, or empty if it is not known.
    """
    settings = sight.settings
    folder = sight.place(settings.kubelet_dir)
    registry = folder / "plugins_registry"
    plugin = names.plugin_folder(folder, settings.driver_name)

    # The first folder with a fault is reported. It may be the cause of the other's.
    trouble = ""
    for place in (registry, plugin):
        host_path = settings.kubelet_dir / place.relative_to(folder)
        trouble = trouble or folder_trouble(str(place), str(host_path))

    # A probe blocks its thread until it has an answer.
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
        elsewhere=_find_other_folder(sight),
        named=_find_named_folder(sight),
        settings_place=sight.settings_place,
        version=version,
        endpoint=settings.endpoint,
        live=live,
        ready=ready,
        dra_sockets=_probe_sockets(plugin, names.is_dra_socket),
        registration_sockets=_probe_sockets(
            registry, lambda name: names.is_registration_socket(name, settings.driver_name)
        ),
    )


def _find_other_folder(sight: Sight) -> str:
    """Returns a folder in which a kubelet answers and that the settings do not name, or "".

    A folder that a process names is not asked: its socket could be anybody's.
    """
    for folder in _FOLDERS:
        host_path, place = folder, sight.place(Path(folder))
        if sight.settings.root:
            # A fake tree stands for a machine. The settings have whole paths, with the tree's own.
            host_path = f"{sight.settings.root}{folder}"
            place = Path(host_path)

        is_ours = Path(host_path) == sight.settings.kubelet_dir
        if not is_ours and _has_listener(str(names.pod_resources_socket(place))):
            return host_path
    return ""


def _find_named_folder(sight: Sight) -> str:
    """Returns another folder than ours that a kubelet of the host was started with, or ""."""
    for flags in sight.flags_of("kubelet"):
        folder = flags.path("root-dir")
        if folder and f"{sight.settings.root}{folder}" != str(sight.settings.kubelet_dir):
            return folder
    return ""


def _path_trouble(settings: Config) -> str:
    try:
        names.dra_socket(settings.kubelet_dir, settings.driver_name, settings.pod_uid)
        names.registration_socket(settings.kubelet_dir, settings.driver_name, settings.pod_uid)
    except errors.UsageError as error:
        return str(error)
    return ""


async def _answer_trouble(sight: Sight) -> str:
    """Returns why the kubelet does not answer in this folder, or "" if it answers."""
    folder = sight.place(sight.settings.kubelet_dir)
    path = names.pod_resources_socket(folder)
    shown = names.pod_resources_socket(sight.settings.kubelet_dir)
    if not path.exists():
        return f"there is no {shown}: no kubelet runs with this folder"
    if not _has_listener(str(path)):
        return f"nobody listens at {shown}: the kubelet does not run, or has another folder"
    try:
        await podresources.pods(path)
    except ConnectionError as error:
        return str(error)
    return ""


def _probe_sockets(folder: Path, is_ours: Callable[[str], bool]) -> tuple[tuple[str, bool], ...]:
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        return ()

    sockets = []
    for entry in entries:
        if is_ours(entry):
            sockets.append((entry, _has_listener(f"{folder}/{entry}")))
    return tuple(sockets)


def _has_listener(path: str) -> bool:
    # The file of a socket stays when its process ends: only a connection shows a listener.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_SECONDS)
        try:
            connection.connect(path)
        except OSError:
            return False
        return True
