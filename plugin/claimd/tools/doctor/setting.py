"""Where claimd's settings stand here, and how one of them is changed: in words to be typed."""

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
# A pod of a DaemonSet has its name, and five of the characters that Kubernetes makes names of.
_POD = re.compile(r"(.+)-[bcdfghjklmnpqrstvwxz2456789]{5}")
_PLAIN = re.compile(r"[\w/.-]+")


@dataclass(frozen=True, kw_only=True)
class Place:
    """The file that settings were read from, if any; else they are variables of the DaemonSet."""

    file: str = ""
    in_pod: bool = False
    variables: frozenset[str] = frozenset()  # of the environment, which win over the file
    namespace: str = NAMESPACE
    daemonset: str = _DAEMONSET

    def is_in_file(self, name: str) -> bool:
        """Whether what the file says of this setting counts."""
        return bool(self.file) and variable_of(name) not in self.variables

    def is_of_node(self, name: str) -> bool:
        """Whether changing it counts for one node alone."""
        return self.is_in_file(name) and not self.in_pod

    def to_set(self, name: str, value: str) -> str:
        """Lines that say where to write it, for which nodes that counts, and what makes it hold."""
        if self.is_in_file(name):
            return self._in_file(f"    {key_of(name)}: {_quoted(value)}")
        return (
            f"for all nodes of the DaemonSet, which makes its pods anew by itself; {KEEP_RUNNING}:\n"
            f"    kubectl -n {self.namespace} set env daemonset/{self.daemonset} "
            f"{variable_of(name)}={shlex.quote(value)}\n"
            "and write it into the overlay or the chart's values that you apply: "
            "the next apply takes it back otherwise"
        )

    def _in_file(self, line: str) -> str:
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


def place(settings: Config, environment: Mapping[str, str], file: str, *, in_pod: bool) -> Place:
    """Where the settings were read from that we have; `file` as --config has it, or empty."""
    namespace, daemonset = NAMESPACE, _DAEMONSET
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


def _quoted(value: str) -> str:
    """As YAML takes it for text."""
    return value if _PLAIN.fullmatch(value) else f"'{value}'"
