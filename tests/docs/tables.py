"""The tables of docs/ that the code knows, as Markdown.

Each function makes one table; those about GPUs are in `hardware`. What the code cannot say (a meaning, the kernel's file, what to do)
stands in words.toml; a row that is missing there, or describes nothing any more, is an error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from claimd.common import budgets, metrics
from claimd.kubernetes.api import versions
from claimd.node import config, prepared
from claimd.node.endpoint import exposition
from claimd.node.kubelet import dra
from claimd.node.kubelet import health as kubelet_health
from claimd.node.prepare import cdi, gpu_config, metadata
from claimd.sim import simulated_fields
from claimd.sim.apiserver import kinds
from claimd.tools import cli
from claimd.tools.doctor import examine
from claimd_devices import fake, scan, vendors
from claimd_devices.gpu import Roots
from tests.cluster.rig import places
from tests.docs import api, beside_kubectl, hardware, measured, scale
from tests.docs.common import NONE, Incomplete, code, described, manifests, table, words

# ---------------------------------------------------------------- settings


def settings() -> str:
    rows = []
    users = _commands_with_settings()
    for setting in dataclasses.fields(config.Config):
        key = config.key_of(setting.name)
        default = setting.default
        if isinstance(default, tuple):
            default = ",".join(default)
        if isinstance(default, bool):
            default = str(default).lower()
        if isinstance(default, float):
            default = f"{default:g}"
        rows.append(
            [
                code(f"--{key}"),
                code(config.variable_of(setting.name)),
                code(key),
                code(default) if str(default) else "empty",
                setting.metadata["about"].replace("…", "..."),
                ", ".join(users[key]),
            ]
        )
    return table(["flag", "variable", "key", "default", "meaning", "used by"], rows)


def _commands_with_settings() -> dict[str, list[str]]:
    """The commands that take each setting, by its key."""
    taken: dict[str, list[str]] = {
        config.key_of(setting.name): [] for setting in dataclasses.fields(config.Config)
    }
    for command in commands():
        _, _, shown = help_of(command).partition("\nsettings:\n")
        for key, users in taken.items():
            if re.search(rf"^\s+--{key}\b", shown, re.M):
                users.append(command)
    return taken


def commands() -> list[str]:
    listed = help_of().split("COMMAND\n", 1)[1]
    return re.findall(r"^    ([a-z]+)\b", listed, re.M)


@functools.cache
def help_of(*command: str) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        cli.main([*command, "--help"])
    return text.getvalue()


def reserved_variables() -> str:
    rows = [[code(name), reason] for name, reason in gpu_config.RESERVED.items()]
    return table(["variable", "why a claim cannot set it"], rows)


def config_fields() -> str:
    """The fields of a GpuConfig."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(gpu_config.GpuConfig)}
    rows = described("config", fields)
    return table(
        ["field", "who may set it", "meaning"],
        [[code(name), row["who"], row["meaning"]] for name, row in rows.items()],
    )


def budget_table() -> str:
    rows = [[budget.what, str(budget), budget.why] for budget in budgets.ALL]
    return table(["what", "at most", "why"], rows)


def doctor_checks() -> str:
    return _checks(examine.CHECKS)


def doctor_cluster_checks() -> str:
    of_nodes = {check.name for check in examine.CHECKS}
    return _checks([check for check in examine.CLUSTER_CHECKS if check.name not in of_nodes])


def _checks(checks: Iterable[Any]) -> str:
    rows = []
    for check in checks:
        remedy = " ".join(line.strip() for line in check.remedy.splitlines())
        rows.append([code(check.name), check.level.value, check.looks_at, remedy])
    return table(["check", "if not", "looks at", "what to do"], rows)


# ---------------------------------------------------------------- device metadata


def device_metadata() -> str:
    """What the container of a pod reads that has a claim of a template."""
    with tempfile.TemporaryDirectory() as folder:
        fake.write(Path(folder), fake.parse(["nvidia:l4"]))
        known = scan.scan(Roots.in_folder(Path(folder)))
    (gpu,) = known.gpus

    device = prepared.PreparedDevice(
        requests=("gpu",), pool="node-1", device=gpu.name, address=gpu.address
    )
    claim = prepared.PreparedClaim(
        namespace="default",
        name="train-gpu-x7k2p",
        uid="5b7c9f1e-3f0a-4a53-9d3e-6b1c2a4d8e90",
        pod_claim_name="gpu",
        prepared_at="",
        devices=(device,),
    )
    documents = metadata.build(claim, config.Config().driver_name, known, metadata.Published())
    first, _, _ = metadata.encode(documents["gpu"], 1).partition(b"\n")
    shown = json.dumps(json.loads(first), indent=2)

    # One attribute a line: there are many, and each is short.
    shown = re.sub(r'{\s+("\w+": [^\s{}]+|"\w+": "[^"]*")\s+}', r"{\1}", shown)
    return f"```json\n{shown}\n```"


# ---------------------------------------------------------------- metrics


def metric_families() -> list[Any]:
    return [metric for metric in vars(metrics).values() if isinstance(metric, metrics.Metric)]


def metric_table() -> str:
    families = metric_families()
    text = exposition.text(metrics.ALL, exposition.PLAIN)
    named = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M)
    if named != [(metric.name, metric.kind) for metric in families]:
        raise Incomplete("claimd.common.metrics serves other families than its names tell")
    rows = described("metrics", [metric.name for metric in families])
    lines = []
    for metric in families:
        row = rows[metric.name]
        labels = ", ".join(code(label) for label in metric.labels) or NONE
        lines.append([code(metric.name), metric.kind, labels, row["meaning"], code(row["query"])])
    return table(["name", "type", "labels", "meaning", "example query"], lines)


# ---------------------------------------------------------------- what runs with what


def drivers() -> str:
    rows = []
    for vendor in vendors.VENDORS:
        row = words()["vendors"][vendor.NAME]
        rows.append([row["title"], ", ".join(map(code, vendor.DRIVERS)), row["files"]])
    return table(["vendor", "kernel drivers", "what claimd reads"], rows)


def protocols() -> str:
    services = (*dra.SERVICES, *kubelet_health.SERVICES)
    return table(
        ["interface", "versions, the preferred one first"],
        [
            ["API server: resource.k8s.io", ", ".join(code(v) for v in versions.PREFERRED)],
            ["kubelet: gRPC services", ", ".join(code(service) for service in services)],
            ["container runtime: CDI spec", code(cdi.CDI_VERSION)],
        ],
    )


def rig() -> str:
    runtimes = places.RUNTIMES
    others = (
        f"containerd {runtimes['containerd'].version} with crun, "
        f"containerd {runtimes['containerd-1.7'].version} with runc, "
        f"CRI-O {runtimes['crio'].version} with crun"
    )
    return table(
        ["part", "version"],
        [
            ["Kubernetes (API server, scheduler, kubelet)", places.KUBE],
            ["an older kubelet (`make cluster-matrix`)", places.OLDER_KUBELET],
            ["containerd, with runc", runtimes["containerd"].version],
            ["other container runtimes (`make cluster-matrix`)", others],
            ["etcd", places.ETCD],
        ],
    )


# ---------------------------------------------------------------- what it may do


def rbac() -> str:
    return _rights("rbac", "rbac.yaml", "claimd")


def rbac_of_metrics() -> str:
    return _rights("reviews", "../components/metrics-tls/rbac.yaml", "claimd-metrics-tls")


def rbac_of_early_claims() -> str:
    return _rights(
        "earlyclaims",
        "../components/prepare-before-bind/rbac.yaml",
        "claimd-prepare-before-bind",
    )


def _rights(key: str, path: str, name: str) -> str:
    """The rules of the role of this name."""
    roles = [d for d in manifests(path) if d["kind"] == "ClusterRole"]
    (role,) = [role for role in roles if role["metadata"]["name"] == name]
    rules = {
        f"{group or 'core'}/{resource}": rule
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    rows = described(key, rules)
    lines = []
    for resource, row in rows.items():
        rule = rules[resource]
        only = ", ".join(code(n) for n in rule.get("resourceNames", [])) or NONE
        verbs = ", ".join(code(verb) for verb in rule["verbs"])
        lines.append([code(resource), verbs, only, row["why"], row["limit"]])
    return table(["resource", "verbs", "only", "why", "what limits it"], lines)


def policies() -> str:
    policies_ = [d for d in manifests("admission.yaml") if d["kind"] == "ValidatingAdmissionPolicy"]
    rows = described("policies", [policy["metadata"]["name"] for policy in policies_])
    lines = []
    for policy in policies_:
        name = policy["metadata"]["name"]
        (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
        held = f"{', '.join(rule['operations'])} of {', '.join(rule['resources'])}"
        lines.append([code(name), held, rows[name]["allows"]])
    return table(["policy", "asked about", "lets pass"], lines)


def mounts() -> str:
    (daemonset,) = manifests("daemonset.yaml")
    pod = daemonset["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    folders = {volume["name"]: volume for volume in pod["volumes"]}
    rows = described("mounts", [mount["name"] for mount in container["volumeMounts"]])
    lines = []
    for mount in container["volumeMounts"]:
        path = folders[mount["name"]]["hostPath"]["path"]
        access = "read" if mount.get("readOnly") else "read and write"
        lines.append([code(path), access, rows[mount["name"]]["why"]])
    return table(["host folder", "access", "why"], lines)


def simulated() -> str:
    """The fields of a type with the same words in one row, in the schema's order of the first."""
    rows = []
    for type_, fields in simulated_fields.table().items():
        same: dict[tuple[str, str], list[str]] = {}
        for name, row in fields.items():
            if row.answer != simulated_fields.SEE:
                unless = ", ".join(code(json.dumps(value)) for value in row.unless)
                words_ = f"{row.words}; not with the value {unless}" if unless else row.words
                words_ += f"; not next to {code(row.next_to)}" if row.next_to else ""
                same.setdefault((row.answer, words_), []).append(name)
        title = type_.rpartition(".")[2]
        for (answer, words_), names in same.items():
            rows.append([title, ", ".join(map(code, names)), answer, words_])
            title = ""
    kept = ", ".join(sorted({kind for _, kind in kinds.kept_names()}))
    rows.append([kept, "all", simulated_fields.IGNORED, simulated_fields.KIND_IS_STORED])
    return table(["type", "fields", "mark", "effect"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings,
    "configfields": config_fields,
    "reserved": reserved_variables,
    "budgets": budget_table,
    "doctor": doctor_checks,
    "doctorcluster": doctor_cluster_checks,
    "metadata": device_metadata,
    "attributes": hardware.attributes,
    "core": hardware.core,
    "capacities": hardware.capacities,
    "sources": hardware.sources,
    "counters": hardware.counters,
    "classes": hardware.classes,
    "models": hardware.fake_models,
    "options": hardware.fake_options,
    "machines": hardware.machines,
    "machineoptions": hardware.machine_options,
    "faults": hardware.fake_faults,
    "findings": hardware.findings,
    "sentences": hardware.sentences,
    "xids": hardware.xids,
    "events": hardware.events,
    "conditions": hardware.conditions,
    "metrics": metric_table,
    "drivers": drivers,
    "protocols": protocols,
    "rig": rig,
    "rbac": rbac,
    "reviews": rbac_of_metrics,
    "earlyclaims": rbac_of_early_claims,
    "policies": policies,
    "mounts": mounts,
    "simulated": simulated,
    "besidekubectl": beside_kubectl.sections,
    "scalesetting": scale.setting,
    "scalesizes": scale.sizes,
    "scalephases": scale.phases,
    "scalerequests": scale.requests,
    "scaleclaims": scale.claims,
    "scalecomputed": scale.computed,
    "api": api.reference,
    "benchrun": measured.circumstances,
    "benchfigures": measured.figures,
}
