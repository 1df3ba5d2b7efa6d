"""The place of claimd's settings on this node, and the steps to change one of them."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from claimd.node.config import Config, key_of, variable_of

from .check import KEEP_RUNNING, NAMESPACE, RESTART

_DAEMONSET = "claimd"
# Pods of a DaemonSet are named NAME-xxxxx, with characters from Kubernetes' name alphabet.
_POD = re.compile(r"(.+)-[bcdfghjklmnpqrstvwxz2456789]{5}")
_PLAIN = re.compile(r"[\w/.-]+")


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place of the settings: a file, or without a file the variables of the DaemonSet."""

    file: str = ""
    in_pod: bool = False
    # The variables of the environment. They take precedence over the file.
    variables: frozenset[str] = frozenset()
    namespace: str = NAMESPACE
    daemonset: str = _DAEMONSET

    def is_in_file(self, name: str) -> bool:
        """Returns True if the file decides this setting, because no variable overrides it."""
        return bool(self.file) and variable_of(name) not in self.variables

    def is_of_node(self, name: str) -> bool:
        """Returns True if a change of this setting affects this node only."""
        # In a pod the file is a ConfigMap, which all pods of the DaemonSet share.
        return self.is_in_file(name) and not self.in_pod

    def steps_to_set(self, name: str, value: str) -> str:
        """Returns the steps to set it. They name the nodes and say when it takes effect."""
        if self.is_in_file(name):
            return self._steps_in_file(f"    {key_of(name)}: {_quote(value)}")
        return (
            f"for all nodes of the DaemonSet, which replaces its pods by itself; {KEEP_RUNNING}:\n"
            f"    kubectl -n {self.namespace} set env daemonset/{self.daemonset} "
            f"{variable_of(name)}={shlex.quote(value)}\n"
            "and write it into the overlay or the chart's values that you apply: "
            "the next apply takes it back otherwise"
        )

    def _steps_in_file(self, line: str) -> str:
        if self.in_pod:
            return (
                f"in what the pods have as {self.file}, for all nodes that have it, set\n{line}\n"
                f"then let claimd read it; {KEEP_RUNNING}:\n"
                f"    kubectl -n {self.namespace} rollout restart daemonset/{self.daemonset}"
            )
        return (
            f"in {self.file} on this node, for this node alone, set\n{line}\n"
            f"then let claimd read it; {KEEP_RUNNING}:\n    {RESTART}"
        )


def find_place(
    settings: Config, environment: Mapping[str, str], file: str, *, in_pod: bool
) -> Place:
    """Finds the place that the current settings were read from.

    `file` is the value of --config, and may be empty.
    """
    namespace, daemonset = NAMESPACE, _DAEMONSET

    # A pod knows its namespace from its service account, and its DaemonSet from its own name.
    if in_pod:
        with contextlib.suppress(OSError):
            namespace = (settings.service_account / "namespace").read_text().strip() or namespace
        name = _POD.fullmatch(environment.get("HOSTNAME", ""))
        daemonset = name[1] if name else daemonset

    file = file or environment.get("CLAIMD_CONFIG", "")
    return Place(
        file=str(Path(file).absolute()) if file else "",
        in_pod=in_pod,
        variables=frozenset(environment),
        namespace=namespace,
        daemonset=daemonset,
    )


def _quote(value: str) -> str:
    """Returns the value in quotes if YAML would need them to read it as text."""
    return value if _PLAIN.fullmatch(value) else f"'{value}'"
