"""The fields of a pod that an answer quotes if the pod is stuck on its node.

No rule of scheduling looks at these fields. A large cluster has many pods, so only those that an
answer may be about are decoded with them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from claimd.kubernetes.api.core import ResourceRequirements
from claimd.kubernetes.api.meta import ApiStruct


class Reference(ApiStruct, frozen=True, kw_only=True):
    """A reference to a ConfigMap or a Secret, or to one of its keys."""

    name: str = ""
    key: str = ""
    optional: bool | None = None


class ValueSource(ApiStruct, frozen=True, kw_only=True):
    config_map_key_ref: Reference | None = None
    secret_key_ref: Reference | None = None


class Variable(ApiStruct, frozen=True, kw_only=True):
    name: str
    value_from: ValueSource | None = None


class VariablesSource(ApiStruct, frozen=True, kw_only=True):
    config_map_ref: Reference | None = None
    secret_ref: Reference | None = None


class ExecAction(ApiStruct, frozen=True, kw_only=True):
    command: list[str] = []


class Probe(ApiStruct, frozen=True, kw_only=True):
    exec: ExecAction | None = None
    http_get: dict[str, Any] | None = None
    tcp_socket: dict[str, Any] | None = None
    grpc: dict[str, Any] | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3


class VolumeMount(ApiStruct, frozen=True, kw_only=True):
    name: str
    mount_path: str = ""


class Container(ApiStruct, frozen=True, kw_only=True):
    name: str
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[Variable] = []
    env_from: list[VariablesSource] = []
    resources: ResourceRequirements = ResourceRequirements()
    volume_mounts: list[VolumeMount] = []
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None


class Spec(ApiStruct, frozen=True, kw_only=True):
    active_deadline_seconds: int | None = None
    init_containers: list[Container] = []
    containers: list[Container] = []
    # Each volume has its name and one other field: the kind of its source.
    volumes: list[dict[str, Any]] = []


class WaitingState(ApiStruct, frozen=True, kw_only=True):
    reason: str = ""


class RunningState(ApiStruct, frozen=True, kw_only=True):
    started_at: str | None = None


class TerminatedState(ApiStruct, frozen=True, kw_only=True):
    exit_code: int = 0
    reason: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(ApiStruct, frozen=True, kw_only=True):
    waiting: WaitingState | None = None
    running: RunningState | None = None
    terminated: TerminatedState | None = None


class ContainerStatus(ApiStruct, frozen=True, kw_only=True):
    name: str
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class Status(ApiStruct, frozen=True, kw_only=True):
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []


class Definition(ApiStruct, frozen=True, kw_only=True):
    """A pod as its author wrote it, and how its containers ran."""

    spec: Spec = Spec()
    status: Status = Status()


def decode(document: bytes | msgspec.Raw) -> Definition | None:
    """Returns the fields of a pod in JSON, or None if they are not as an API server writes them."""
    try:
        return msgspec.json.decode(document, type=Definition)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
