"""The settings. Defaults < file < environment < flags.

Everything outside of the process has its address here. The dataclass is the only table: each field
is a flag (--node-name), an environment variable (CLAIMD_NODE_NAME) and a key of the file
(node-name). Unknown settings are refused. This module reads the file and does no other I/O: it does
not check whether a path or an address exists.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claimd.common import errors
from claimd.kubernetes.api import text
from claimd_devices import values
from claimd_devices.gpu import Roots, Rules

if TYPE_CHECKING:
    import argparse

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("auto", "json", "text")
EFFECTS = ("none", "NoSchedule", "NoExecute")
BEFORE_BIND = ("off", "slow", "all")


def _setting(default: Any, about: str) -> Any:
    return field(default=default, metadata={"about": about})


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting, with its default if it was not given."""

    node_name: str = _setting("", "name of this node in the cluster")
    pod_uid: str = _setting(
        "",
        "uid of the pod that this process runs in: gives the pod its own sockets, so that two pods can "
        "overlap",
    )
    driver_name: str = _setting(
        "gpu.claimd.dev",
        "name of the driver, as in ResourceSlices and claims; with gpu.nvidia.com, gpu.amd.com or "
        "gpu.intel.com claimd takes the place of that vendor's driver (docs/drop-in.md)",
    )
    kubelet_dir: Path = _setting(
        Path("/var/lib/kubelet"), "the kubelet's folder, under the same path as on the host"
    )
    cdi_dir: Path = _setting(
        Path("/var/run/cdi"), "where the container runtime looks for CDI specs"
    )
    root: str = _setting(
        "",
        "folder with sys/, proc/ and dev/ to read instead of the machine's (a fake tree), "
        "or a `claimd capture`",
    )
    sys_root: Path = _setting(Path("/sys"), "where sysfs is mounted")
    proc_root: Path = _setting(Path("/proc"), "where procfs is mounted")
    dev_root: Path = _setting(Path("/dev"), "where the host's /dev is mounted")
    host_root: Path = _setting(
        Path("/"), "where the host's root is mounted, for CDI specs and libraries of NVIDIA"
    )
    nvidia_driver_root: str = _setting(
        "",
        "where the user-space part of NVIDIA's driver is, as a path of the host, such as '/' or "
        "'/run/nvidia/driver'; empty: claimd searches for it",
    )
    nvml: bool = _setting(
        False,
        "ask NVIDIA's own library, in a separate process, for what the kernel does not reveal: "
        "memory, MIG, NVLink, load, health; needs the right to open the GPUs; true or false",
    )
    library_hook_dir: str = _setting(
        "",
        "folder of the host, under the same path here, for the program that makes NVIDIA's libraries "
        "known to the ldconfig of containers; empty: none",
    )
    require_libraries: str = _setting(
        "auto",
        "refuse a GPU if the host has no libraries of its driver: true, false, or auto, which means "
        "true unless `root` is set",
    )
    kubeconfig: str = _setting(
        "",
        "kubeconfig file; without one, `run` uses the service account of its pod, "
        "and `explain` looks in the same places as kubectl",
    )
    service_account: Path = _setting(
        Path("/var/run/secrets/kubernetes.io/serviceaccount"),
        "folder with token and ca.crt, inside a pod",
    )
    endpoint: str = _setting(
        "",
        "where probes are answered, such as ':8081' or 'unix:/run/claimd/endpoint.sock'; empty: "
        "nowhere",
    )
    metrics_endpoint: str = _setting(
        "",
        "where metrics are served, such as ':8082'; empty: at `endpoint` if that is a unix socket, "
        "else nowhere",
    )
    metrics_tls: str = _setting(
        "",
        "folder with tls.crt and tls.key, such as the mounted Secret of a certificate: metrics are "
        "served over TLS with these files, also after they change; the metrics need a port of their "
        "own",
    )
    metrics_authorization: bool = _setting(
        False,
        "serve metrics only to clients whose token the API server allows to `get` the path /metrics: "
        "true or false; needs metrics-tls and deploy/components/metrics-tls",
    )
    include: tuple[str, ...] = _setting(
        (), "manage only these GPUs: PCI address, vendor, vendor:device id, or 'console'"
    )
    exclude: tuple[str, ...] = _setting((), "leave these GPUs alone; the same forms")
    share: tuple[str, ...] = _setting(
        (),
        "GPUs that several claims may have at once, as WHICH=HOW. WHICH has the forms of `include`, "
        "or is 'parts' or '*'. HOW is memory[:LEAST[:STEP]], shares:COUNT, unlimited or exclusive. "
        "The last rule that matches wins",
    )
    vfio: bool = _setting(
        False, "also publish GPUs that vfio-pci holds for virtual machines: true or false"
    )
    vfio_bind: tuple[str, ...] = _setting(
        (),
        "GPUs for virtual machines: published as such, bound to vfio-pci while a claim has them, "
        "with their own driver otherwise; the forms of `include`, '*:*' for all; needs "
        "deploy/components/vfio",
    )
    prepare_before_bind: str = _setting(
        "off",
        "devices that are prepared before the scheduler binds the pod, so that a pod whose device "
        "cannot be prepared goes elsewhere: off, slow (GPUs of vfio-bind, and GPUs without the "
        "libraries that `require-libraries` wants) or all; needs Kubernetes 1.36 and "
        "deploy/components/prepare-before-bind",
    )
    numa_list: bool = _setting(
        False,
        "publish numaNode as a list with the nearest nodes: only if the API server has the feature "
        "gate DRAListTypeAttributes",
    )
    rescan: float = _setting(
        60.0, "seconds between two looks at the hardware when the kernel reports no change"
    )
    health_interval: float = _setting(20.0, "seconds between two looks at the health of the GPUs")
    absent_grace: float = _setting(
        300.0,
        "seconds that a vanished GPU stays published, with a taint, so that its pods can be evicted",
    )
    taint_failed: str = _setting(
        "NoSchedule",
        "effect of the taint on a GPU that failed, vanished or does not answer: none (for "
        "information only), NoSchedule or NoExecute (its pods are evicted)",
    )
    taint_degraded: str = _setting("none", "the same for a GPU that works, but not properly")
    garbage_grace: float = _setting(
        120.0,
        "seconds that a claim must have been deleted and unused by any pod before claimd unprepares "
        "it without a call of the kubelet; 0: never",
    )
    stop_grace: float = _setting(
        25.0,
        "seconds that running calls may take after the plugin gets the signal to stop; less than the "
        "pod's terminationGracePeriodSeconds",
    )
    log_format: str = _setting("auto", "json, text, or auto, which means text on a terminal")
    log_level: str = _setting("info", "debug, info, warning or error")

    @property
    def roots(self) -> Roots:
        """The places where the hardware is read: the real ones, or a fake tree."""
        if self.root:
            return replace(Roots.in_folder(Path(self.root)), nvidia_driver=self.nvidia_driver_root)
        return Roots(
            sys=self.sys_root,
            proc=self.proc_root,
            dev=self.dev_root,
            host=str(self.host_root).rstrip("/"),
            nvidia_driver=self.nvidia_driver_root,
        )

    @property
    def refuses_without_libraries(self) -> bool:
        """True if a GPU without libraries is refused.

        A fake tree or a capture has no libraries, and no program computes there.
        """
        if self.require_libraries == "auto":
            return not self.root
        return self.require_libraries == "true"

    @property
    def rules(self) -> Rules:
        """The rules that select GPUs."""
        return Rules(
            include=self.include,
            exclude=self.exclude,
            vfio=self.vfio,
            vfio_bind=self.vfio_bind,
        )


NAMES = tuple(setting.name for setting in dataclasses.fields(Config))
_DEFAULTS = {setting.name: setting.default for setting in dataclasses.fields(Config)}

# The allowed words of some settings, and the bounds of settings in seconds.
CHOICES = {
    "log_level": LEVELS,
    "log_format": FORMATS,
    "taint_failed": EFFECTS,
    "taint_degraded": EFFECTS,
    "require_libraries": ("auto", "true", "false"),
    "prepare_before_bind": BEFORE_BIND,
}
SECONDS = {
    "rescan": (1, 3600),
    "health_interval": (1, 3600),
    "absent_grace": (0, 86400),
    "stop_grace": (0, 3600),
}
_ABSOLUTE = ("kubelet_dir", "cdi_dir")

_DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_NAME = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_ENDPOINT = r"unix:/.+|(\[[0-9a-fA-F:]+\]|[^:/\s]*):\d{1,5}"


class _Given:
    """The value of a setting with its source: `--rescan`, or `rescan in claimd.yaml`."""

    def __init__(self, value: Any, origin: str) -> None:
        self.value = value
        self.origin = origin


def key_of(name: str) -> str:
    """Returns a setting's key in the file, which is also its flag without the dashes in front."""
    return name.replace("_", "-")


def variable_of(name: str) -> str:
    """Returns a setting's environment variable."""
    return f"CLAIMD_{name.upper()}"


def add_flags(parser: argparse.ArgumentParser, names: Collection[str] = NAMES) -> None:
    """Adds a flag for each of these settings, and --config for a file with settings.

    A flag that is not given adds nothing to the parsed arguments, so that lower layers count.
    """
    import argparse  # the caller has imported it already

    group = parser.add_argument_group(
        "settings", "also as CLAIMD_… in the environment and as keys of the --config file"
    )
    group.add_argument(
        "--config",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="YAML or JSON file with settings",
    )
    for setting in dataclasses.fields(Config):
        if setting.name not in names:
            continue
        shown = _format_default(setting.default)
        about = setting.metadata["about"]
        group.add_argument(
            f"--{key_of(setting.name)}",
            metavar="…",
            default=argparse.SUPPRESS,
            help=f"{about} (default {shown})" if shown else about,
        )


def _format_default(default: object) -> str:
    """Formats a default as in the configuration; empty if there is nothing to show."""
    if isinstance(default, tuple):
        return ",".join(default)
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, float):
        return f"{default:g}"
    return str(default)


def load(flags: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Config:
    """Returns the configuration from all its layers.

    `flags` has the given flags by field name, and perhaps `config`; other entries are ignored. Every
    key of the file and every variable CLAIMD_… must be a setting, even if the command does not use
    it. Raises UsageError, which says what is wrong and where it was given.
    """
    if environment is None:
        environment = os.environ

    # Later layers replace what earlier ones gave.
    given: dict[str, _Given] = {}
    path = flags.get("config") or environment.get("CLAIMD_CONFIG")
    if path:
        given |= _from_file(Path(path))
    given |= _from_environment(environment)
    for name in NAMES:
        if name in flags:
            given[name] = _Given(flags[name], f"--{key_of(name)}")

    # Convert everything first: the checks need typed values.
    values = {name: _convert(name, setting) for name, setting in given.items()}
    config = Config(**values)
    _check(config, given)
    return config


def _from_file(path: Path) -> dict[str, _Given]:
    try:
        document = text.load(path.read_text())
    except OSError as error:
        raise errors.UsageError(
            f"cannot read the configuration file {path}: {error.strerror}"
        ) from error
    except ValueError as error:
        raise errors.UsageError(
            f"the configuration file {path} is neither YAML nor JSON: {error}"
        ) from error

    if document is None:
        return {}
    if not isinstance(document, dict):
        raise errors.UsageError(
            f"the configuration file {path} must hold keys and values, "
            f"not a {type(document).__name__}"
        )
    # Only keys with dashes are settings.
    given = {}
    for key, value in document.items():
        name = str(key).replace("-", "_")
        if name not in NAMES or "_" in str(key):
            raise _unknown(f"key in {path}:", str(key), [key_of(n) for n in sorted(NAMES)])
        given[name] = _Given(value, f"{key} in {path}")
    return given


def _from_environment(environment: Mapping[str, str]) -> dict[str, _Given]:
    given = {}
    for variable, value in environment.items():
        if not variable.startswith("CLAIMD_") or variable == "CLAIMD_CONFIG":
            continue
        name = variable.removeprefix("CLAIMD_").lower()
        if name not in NAMES or variable != variable_of(name):
            known = [variable_of(n) for n in sorted(NAMES)]
            raise _unknown("environment variable", variable, known)
        given[name] = _Given(value, f"environment variable {variable}")
    return given


def _unknown(kind: str, name: str, known: list[str]) -> errors.UsageError:
    import difflib  # only this message needs it

    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
    return errors.UsageError(f"unknown {kind} {name}; {hint}")


def _convert(name: str, given: _Given) -> Any:
    """Returns the value in the type of the setting's default. Only the file gives typed values."""
    default, value, origin = _DEFAULTS[name], given.value, given.origin
    if isinstance(default, tuple):
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
            raise errors.UsageError(
                f"{origin}: expected a list or text with commas, got {value!r}: "
                "put what is to be text in quotes"
            )
        return tuple(item.strip() for item in items if item.strip())

    if isinstance(default, bool):
        word = str(value).lower()
        if word not in ("true", "false"):
            raise errors.UsageError(f"{origin}: expected true or false, got {value!r}")
        return word == "true"

    if isinstance(default, float):
        problem = f"{origin}: expected a number of seconds, got {value!r}"
        if isinstance(value, bool):  # bool is a number in Python
            raise errors.UsageError(problem)
        try:
            return float(value)
        except (OverflowError, TypeError, ValueError):
            raise errors.UsageError(problem) from None

    if isinstance(value, bool) and "true" in CHOICES.get(name, ()):
        return str(value).lower()
    if not isinstance(value, str):
        raise errors.UsageError(f"{origin}: expected text, got {value!r}: put it in quotes")
    return Path(value) if isinstance(default, Path) else value


def _check(config: Config, given: Mapping[str, _Given]) -> None:
    def refusal(name: str, expected: str, seen: object) -> errors.UsageError:
        origin = given[name].origin if name in given else key_of(name)
        return errors.UsageError(f"{origin}: expected {expected}, got {seen}")

    if not re.fullmatch(_DNS_NAME, config.driver_name) or len(config.driver_name) > 63:
        expected = "a DNS name in lower case of at most 63 characters, such as gpu.claimd.dev"
        raise refusal("driver_name", expected, repr(config.driver_name))

    for name, allowed in CHOICES.items():
        value = getattr(config, name)
        if value not in allowed:
            raise refusal(name, f"one of {', '.join(allowed)}", repr(value))

    for name, (least, most) in SECONDS.items():
        seconds = getattr(config, name)
        if not least <= seconds <= most:
            raise refusal(name, f"{least} to {most} seconds", f"{seconds:g}")
    if config.garbage_grace and not 1 <= config.garbage_grace <= 86400:
        raise refusal("garbage_grace", "0 or 1 to 86400 seconds", f"{config.garbage_grace:g}")

    for name in _ABSOLUTE:
        path = getattr(config, name)
        if not path.is_absolute():
            raise refusal(name, "an absolute path", path)

    for name in ("nvidia_driver_root", "library_hook_dir"):
        path = getattr(config, name)
        if path and not path.startswith("/"):
            raise refusal(name, "an absolute path of the host", path)

    for name in ("endpoint", "metrics_endpoint"):
        address = getattr(config, name)
        if address and not re.fullmatch(_ENDPOINT, address):
            raise refusal(name, "':PORT', 'HOST:PORT' or 'unix:/PATH'", repr(address))
    _check_metrics(config, refusal)


def _check_metrics(
    config: Config, refusal: Callable[[str, str, object], errors.UsageError]
) -> None:
    if config.metrics_tls:
        if not config.metrics_tls.startswith("/"):
            raise refusal("metrics_tls", "an absolute path", config.metrics_tls)
        address = config.metrics_endpoint
        if not address or address.startswith("unix:") or address == config.endpoint:
            expected = "a port of the metrics' own, such as ':8082', as metrics-tls is set"
            raise refusal("metrics_endpoint", expected, repr(address))
    elif config.metrics_authorization:
        expected = "the setting metrics-tls as well, as tokens must not be sent in the clear"
        raise refusal("metrics_authorization", expected, "none")
