"""Config: every outside thing is an address in it. Defaults < file < environment < flags; unknown
keys are refused.

One table, the dataclass itself: each field is a flag (--node-name), an environment variable
(CLAIMD_NODE_NAME) and a key of the file (node-name). Reading the file is the only I/O; nothing here
looks at what an address leads to.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devices.gpu import Roots, Rules

from . import errors
from .api import text

if TYPE_CHECKING:
    import argparse

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("auto", "json", "text")
EFFECTS = ("none", "NoSchedule", "NoExecute")


def _setting(default: Any, about: str) -> Any:
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    node_name: str = _setting("", "name of this node in the cluster")
    pod_uid: str = _setting(
        "", "uid of the pod we run in: gives sockets of our own, so that two pods can overlap"
    )
    driver_name: str = _setting(
        "gpu.claimd.dev", "name of the driver, as in ResourceSlices and claims"
    )
    kubelet_dir: Path = _setting(
        Path("/var/lib/kubelet"), "the kubelet's folder, under the same path as on the host"
    )
    cdi_dir: Path = _setting(
        Path("/var/run/cdi"), "where the container runtime looks for CDI specs"
    )
    root: str = _setting(
        "",
        "folder with sys/, proc/ and dev/ to read instead of the machine's (a fake tree), or a `claimd capture`",
    )
    sys_root: Path = _setting(Path("/sys"), "where sysfs is mounted")
    proc_root: Path = _setting(Path("/proc"), "where procfs is mounted")
    dev_root: Path = _setting(Path("/dev"), "where the host's /dev is mounted")
    host_root: Path = _setting(
        Path("/"), "where the host's root is mounted, for CDI specs and libraries of NVIDIA"
    )
    kubeconfig: str = _setting("", "kubeconfig file; empty: the service account of the pod")
    service_account: Path = _setting(
        Path("/var/run/secrets/kubernetes.io/serviceaccount"),
        "folder with token and ca.crt when in a pod",
    )
    endpoint: str = _setting(
        "", "where probes are answered, ':8081' or 'unix:/run/claimd/endpoint.sock'; empty: nowhere"
    )
    include: tuple[str, ...] = _setting(
        (), "take only these GPUs: PCI address, vendor, vendor:device id, or 'console'"
    )
    exclude: tuple[str, ...] = _setting((), "leave these GPUs alone; the same forms")
    vfio: bool = _setting(
        False, "publish GPUs that vfio-pci holds for virtual machines as well: true or false"
    )
    numa_list: bool = _setting(
        False,
        "numaNode as a list, with the nearest nodes: only where the API server has the gate DRAListTypeAttributes",
    )
    rescan: float = _setting(
        60.0, "seconds between two looks at the hardware when the kernel reports no change"
    )
    health_interval: float = _setting(20.0, "seconds between two looks at the health of the GPUs")
    absent_grace: float = _setting(
        300.0,
        "seconds that a GPU which has vanished stays published, with a taint, so that its pods can be evicted",
    )
    taint_failed: str = _setting(
        "NoSchedule",
        "effect of the taint on a GPU that failed, vanished or does not answer: none (it only tells), NoSchedule or "
        "NoExecute (its pods are evicted)",
    )
    taint_degraded: str = _setting("none", "the same for a GPU that works, but not as it should")
    garbage_grace: float = _setting(
        120.0,
        "seconds that a claim must be gone, unused by any pod, before it is unprepared by ourselves; 0: never",
    )
    log_format: str = _setting("auto", "json, text, or auto: text on a terminal")
    log_level: str = _setting("info", "debug, info, warning or error")

    @property
    def roots(self) -> Roots:
        if self.root:
            return Roots.under(Path(self.root))
        return Roots(
            sys=self.sys_root,
            proc=self.proc_root,
            dev=self.dev_root,
            host=str(self.host_root).rstrip("/"),
        )

    @property
    def rules(self) -> Rules:
        return Rules(include=self.include, exclude=self.exclude, vfio=self.vfio)


def key_of(name: str) -> str:
    return name.replace("_", "-")


def variable_of(name: str) -> str:
    return f"CLAIMD_{name.upper()}"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """One flag a setting. A flag that was not given leaves no trace, so that the layers below it
    count.
    """
    import argparse  # whoever calls this has loaded it

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
        shown = (
            ",".join(setting.default)
            if isinstance(setting.default, tuple)
            else str(setting.default)
        )
        about = setting.metadata["about"] + (f" (default {shown})" if shown else "")
        group.add_argument(
            f"--{key_of(setting.name)}", metavar="…", default=argparse.SUPPRESS, help=about
        )


def load(flags: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Config:
    """The configuration from all its layers. `flags` holds what was given, by field name, and
    perhaps `config`.
    """
    environment = os.environ if environment is None else environment
    names = {setting.name for setting in dataclasses.fields(Config)}
    values: dict[str, tuple[Any, str]] = {}
    path = flags.get("config") or environment.get("CLAIMD_CONFIG")
    if path:
        values.update(_from_file(Path(path), names))
    for variable, value in environment.items():
        if variable.startswith("CLAIMD_") and variable != "CLAIMD_CONFIG":
            name = variable.removeprefix("CLAIMD_").lower()
            if name.upper() != variable.removeprefix("CLAIMD_") or name not in names:
                raise _unknown(
                    "environment variable", variable, [variable_of(n) for n in sorted(names)]
                )
            values[name] = (value, f"environment variable {variable}")
    values.update({name: (flags[name], f"--{key_of(name)}") for name in names if name in flags})
    return _check(
        Config(**{name: _convert(name, value, origin) for name, (value, origin) in values.items()}),
        values,
    )


def _from_file(path: Path, names: set[str]) -> dict[str, tuple[Any, str]]:
    try:
        document = text.load(path.read_text()) or {}
    except OSError as error:
        raise errors.UsageError(
            f"cannot read the configuration file {path}: {error.strerror}"
        ) from error
    except ValueError as error:
        raise errors.UsageError(
            f"the configuration file {path} is neither YAML nor JSON: {error}"
        ) from error
    if not isinstance(document, dict):
        raise errors.UsageError(
            f"the configuration file {path} must hold keys and values, not a {type(document).__name__}"
        )
    found: dict[str, tuple[Any, str]] = {}
    for key, value in document.items():
        name = str(key).replace("-", "_")
        if name not in names or "_" in str(key):
            raise _unknown(f"key in {path}:", str(key), [key_of(n) for n in sorted(names)])
        found[name] = (value, f"{key} in {path}")
    return found


def _unknown(what: str, seen: str, known: list[str]) -> errors.UsageError:
    import difflib  # for this message alone

    close = difflib.get_close_matches(seen, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
    return errors.UsageError(f"unknown {what} {seen}; {hint}")


def _convert(name: str, value: Any, origin: str) -> Any:
    default = next(
        setting.default for setting in dataclasses.fields(Config) if setting.name == name
    )
    if isinstance(default, tuple):
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
            raise errors.UsageError(f"{origin}: expected a list or text with commas, got {value!r}")
        return tuple(item.strip() for item in items if item.strip())
    if isinstance(default, bool):
        known = {"true": True, "false": False}.get(str(value).lower())
        if known is None:
            raise errors.UsageError(f"{origin}: expected true or false, got {value!r}")
        return known
    if isinstance(default, float):
        try:
            return float(value)
        except (TypeError, ValueError):
            raise errors.UsageError(
                f"{origin}: expected a number of seconds, got {value!r}"
            ) from None
    if not isinstance(value, str):
        raise errors.UsageError(f"{origin}: expected text, got {value!r}")
    return Path(value) if isinstance(default, Path) else value


def _check(config: Config, values: Mapping[str, tuple[Any, str]]) -> Config:
    def origin(name: str) -> str:
        return values[name][1] if name in values else key_of(name)

    subdomain = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
    if not re.fullmatch(subdomain, config.driver_name) or len(config.driver_name) > 63:
        raise errors.UsageError(
            f"{origin('driver_name')}: expected a DNS name in lower case of at most 63 characters, "
            f"such as gpu.claimd.dev, got {config.driver_name!r}"
        )
    for name, allowed in (
        ("log_level", LEVELS),
        ("log_format", FORMATS),
        ("taint_failed", EFFECTS),
        ("taint_degraded", EFFECTS),
    ):
        if getattr(config, name) not in allowed:
            raise errors.UsageError(
                f"{origin(name)}: expected one of {', '.join(allowed)}, got {getattr(config, name)!r}"
            )
    if not 1 <= config.rescan <= 3600:
        raise errors.UsageError(
            f"{origin('rescan')}: expected 1 to 3600 seconds, got {config.rescan:g}"
        )
    if not 1 <= config.health_interval <= 3600:
        raise errors.UsageError(
            f"{origin('health_interval')}: expected 1 to 3600 seconds, got {config.health_interval:g}"
        )
    if not 0 <= config.absent_grace <= 86400:
        raise errors.UsageError(
            f"{origin('absent_grace')}: expected 0 to 86400 seconds, got {config.absent_grace:g}"
        )
    if config.garbage_grace and not 1 <= config.garbage_grace <= 86400:
        raise errors.UsageError(
            f"{origin('garbage_grace')}: expected 0 or 1 to 86400 seconds, got {config.garbage_grace:g}"
        )
    for name in ("kubelet_dir", "cdi_dir"):
        if not getattr(config, name).is_absolute():
            raise errors.UsageError(
                f"{origin(name)}: expected an absolute path, got {getattr(config, name)}"
            )
    if config.endpoint and not re.fullmatch(
        r"unix:/.+|(\[[0-9a-fA-F:]+\]|[^:/\s]*):\d{1,5}", config.endpoint
    ):
        raise errors.UsageError(
            f"{origin('endpoint')}: expected ':PORT', 'HOST:PORT' or 'unix:/PATH', got {config.endpoint!r}"
        )
    return config
