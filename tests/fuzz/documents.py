"""Files and expressions that users write."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any
from unittest import mock

import msgspec
import yaml

from plugin import cel, config, errors
from plugin.api import text
from plugin.api.objects import convert
from plugin.explain import manifests
from plugin.kube import kubeconfig
from plugin.sim.demo import story

from . import target


def _config(data: bytes) -> None:
    path = target.file("config", data)
    with contextlib.suppress(errors.UsageError):
        config.load({"config": path}, {})

    # The same as variables, each with all that a variable can hold.
    try:
        document = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return
    variables = {}
    for key, value in document.items() if isinstance(document, dict) else ():
        variables[config.variable_of(key.replace("-", "_"))] = str(value).replace("\0", "")
    with contextlib.suppress(errors.UsageError):
        config.load({}, variables)


def _configs() -> list[bytes]:
    metrics = {"metrics-endpoint": ":8082", "metrics-tls": "/tls", "metrics-authorization": True}
    return [
        b'{"node-name": "n", "rescan": 5, "exclude": ["console"], "vfio": true}',
        b'{"log-level": "debug", "health-interval": 2, "include": "amd,nvidia", "vfio": "false"}',
        b'{"driver-name": "gpu.claimd.dev", "taint-failed": "NoExecute", "health-interval": 1.5}',
        b'{"endpoint": "127.0.0.1:8081", "kubelet-dir": "/a", "nvidia-driver-root": "/run/nvidia"}',
        json.dumps(metrics).encode(),
        b"node-name: n\nrescan: 5\n",
    ]


def _kubeconfig(data: bytes) -> None:
    # The machine's authorities take longer to load than all the rest takes: there are none.
    nowhere = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": str(target.folder())}
    with mock.patch.dict(os.environ, nowhere), contextlib.suppress(errors.UsageError):
        kubeconfig.load(target.file("kubeconfig", data))


def _kubeconfigs() -> list[bytes]:
    cluster = {"server": "https://h:6443", "certificate-authority-data": "LS0t"}
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": "true", "args": ["a"]}
    made = []
    for user in ({"token": "t"}, {"exec": command}, {"client-key-data": "LS0t"}):
        made.append(
            {
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    return [*(json.dumps(one).encode() for one in made), yaml.safe_dump(made[0]).encode()]


def _has_names_alone(value: Any) -> bool:
    """Whether all keys are text; YAML allows more, and no object of Kubernetes has that."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _has_names_alone(value[key]) for key in value)
    return not isinstance(value, list) or all(map(_has_names_alone, value))


def _manifests(data: bytes) -> None:
    try:
        documents = text.load_all(data)
    except ValueError as error:
        assert str(error)
        return
    for document in documents:
        if not isinstance(document, dict):
            continue
        with contextlib.suppress(TypeError):
            manifests.workload(manifests.completed(document))
        with contextlib.suppress(ValueError):
            converted = convert.convert(document, "v1")
            if converted.document is not None and _has_names_alone(converted.document):
                text.dump_yaml(converted.document).encode()


def _documents() -> list[bytes]:
    """As JSON, which is read a hundred times faster; YAML has a target of its own."""
    made = []
    for path in sorted((target.ROOT / "deploy").rglob("*.yaml")):
        # A template of the chart is none before it is filled in.
        with contextlib.suppress(ValueError):
            made += [json.dumps(document).encode() for document in text.load_all(path.read_bytes())]
    return [document for document in dict.fromkeys(made) if len(document) < 4000]


def _yaml(data: bytes) -> None:
    try:
        documents = text.load_all(data)
    except ValueError as error:
        assert str(error)
        return
    for document in documents:
        if _has_names_alone(document):
            written = text.dump_yaml(document)
            assert text.load(written) == msgspec.json.decode(msgspec.json.encode(document))


def _syntax() -> list[bytes]:
    return [
        b"apiVersion: v1\nkind: Pod\nmetadata:\n  name: a # its name\n  labels: {a: b}\n",
        b"spec:\n- name: 'a'\n  args: [\"b\", c]\n\n# said\n- name: >-\n    a\n    b\n",
        b"- &a [1, 0x1f, 0o17, 0b1, 1_000, 1:30, .inf, -.inf, .nan, 1e3]\n- *a\n- <<: {a: ~}\n",
        b"a: |-\n  text\n   more\nb: >+\n  folded\n\n  lines\n? complex\n: value\n",
        b"--- !!str 1\n...\n%YAML 1.1\n---\n'it''s': \"\\x41\\u00e9\\n\" # no\n",
        b"yes: on\nno: off\nwhen: 2026-01-01T00:00:00Z\nset: !!set {a, b}\nb: !!binary aGk=\n",
    ]


def _story(data: bytes) -> None:
    with contextlib.suppress(errors.UsageError):
        story.parse(data.decode(errors="replace"), "s")


def _stories() -> list[bytes]:
    """One with steps of every kind, and each chapter of the longest story as one of its own."""
    nodes = [{"name": "a", "gpus": ["nvidia:l4"], "settings": {"rescan": 5}}]
    steps = [
        {"say": "x"},
        {"wait": "pod/p", "until": {"status.phase": "Running"}, "keep": {"n": "metadata.name"}},
        {"wait": "pod", "where": {"spec.a[*].b": {"count": 2}}, "until": "gone", "within": 1.5},
        {"logs": "${n}", "contains": ["a"], "lines": "^CLAIMD_|a{2}", "container": "c"},
        {"run": "claimd explain pod/p", "lines": "a|b", "exits": 1},
        {"show": "pod/p", "path": "spec.devices[0].name"},
        {"order": "a wedge gpu-0000-11-00-0"},
        {"fault": "a aer gpu-0000-11-00-0 fatal"},
        {"kill": "a", "during": "prepare"},
        {"struck": "a"},
        {"stop": "a"},
        {"start": "a"},
        {"delete": "pod/p", "namespace": "d"},
        {"apply": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}]},
    ]
    chapter = {"title": "c", "steps": steps, "needs": "DRAConsumableCapacity"}
    whole = {"title": "t", "nodes": nodes, "settings": {"rescan": 5}, "chapters": [chapter]}
    made = [whole]
    made += [whole | {"chapters": [{"title": "c", "steps": [step]}]} for step in steps]

    tour = text.load((target.ROOT / "plugin/sim/demo/stories/tour.yaml").read_bytes())
    made += [tour | {"chapters": [each], "about": ""} for each in tour["chapters"]]
    return [document for document in map(_encoded, made) if len(document) < 2000]


def _encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


_DEVICE = cel.Device(
    driver="d.example.com",
    attributes={"a": "text", "n": 7, "b": True, "v": cel.Version("1.2.3"), "l": ["x", "y"]},
    capacity={"memory": "40Gi"},
)


def _cel(data: bytes) -> None:
    expression = data.decode(errors="replace")
    try:
        program = cel.compile(expression)
    except cel.CompileError as error:
        assert str(error)
        return
    with contextlib.suppress(cel.EvalError):
        program.matches(_DEVICE)
    program.explain(_DEVICE)


def _expressions() -> list[bytes]:
    made = []
    for name in ("true", "false", "error", "refused"):
        lines = (target.ROOT / f"tests/cases/cel/{name}.txt").read_bytes().splitlines()
        made += [line for line in lines if line and not line.startswith(b"#")]
    return made


TARGETS = {
    "config": target.Target(
        read=_config,
        parts=(
            config.load,
            config._from_file,
            config._from_environment,
            config._unknown,
            config._convert,
            config._check,
        ),
        examples=_configs,
        words=(b"rescan: ", b"include: ", b"inf", b".nan"),
        documents=True,
    ),
    "kubeconfig": target.Target(
        read=_kubeconfig,
        parts=(kubeconfig,),
        examples=_kubeconfigs,
        words=(b"server: ", b"http://[", b"exec:"),
        documents=True,
    ),
    "manifests": target.Target(
        read=_manifests,
        parts=(manifests, convert),
        examples=_documents,
        words=(b"kind: ", b"spec: ", b"---\n"),
        documents=True,
    ),
    "yaml": target.Target(
        read=_yaml,
        parts=(text,),
        examples=_syntax,
        words=(b"!!", b"&b ", b"*b", b"---\n", b"? ", b"- ", b"  ", b"|\n", b">\n", b"%TAG "),
        longest=300,
    ),
    "stories": target.Target(
        read=_story,
        parts=(story,),
        examples=_stories,
        words=(b"wait: ", b"fault: ", b"apply: "),
        longest=2000,
        documents=True,
    ),
    "cel": target.Target(
        read=_cel,
        parts=(cel,),
        examples=_expressions,
        words=(b"device.", b".all(x, ", b"quantity('", b" && ", b" ? ", b"matches('", b"cel.bind("),
    ),
}
