"""Files and expressions that users write."""

from __future__ import annotations

import contextlib
import json
import os
from functools import cache
from typing import Any
from unittest import mock

import msgspec
import yaml

from claimd.common import errors
from claimd.kubernetes import cel
from claimd.kubernetes.api import text
from claimd.kubernetes.api.objects import convert
from claimd.kubernetes.kube import errors as kube_errors
from claimd.kubernetes.kube import exec_credentials, kubeconfig
from claimd.node import config
from claimd.sim.demo import story
from claimd.tools.cli import kept_yaml
from claimd.tools.explain import manifests

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
    examples = []
    for user in ({"token": "t"}, {"exec": command}, {"client-key-data": "LS0t"}):
        examples.append(
            {
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    return [
        *(json.dumps(document).encode() for document in examples),
        yaml.safe_dump(examples[0]).encode(),
    ]


def _has_names_alone(value: Any) -> bool:
    """Returns True if all keys are text. YAML allows others, which no object of Kubernetes has."""
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
            manifests.parse_workload(manifests.with_defaults(document))
        with contextlib.suppress(ValueError):
            converted = convert.convert(document, "v1")
            if converted.document is not None and _has_names_alone(converted.document):
                text.dump_yaml(converted.document).encode()


def _documents() -> list[bytes]:
    """Returns the documents as JSON, which is read a hundred times faster. YAML has its own target."""
    examples = []
    for path in sorted((target.ROOT / "deploy").rglob("*.yaml")):
        # A template of the chart is none before it is filled in.
        with contextlib.suppress(ValueError):
            examples += [
                json.dumps(document).encode() for document in text.load_all(path.read_bytes())
            ]
    return [document for document in dict.fromkeys(examples) if len(document) < 4000]


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


_VERSIONS = ("v1", "v1beta2", "v1beta1", "v1alpha3")


def _comments(data: bytes) -> None:
    """Checks that YAML which keeps its comments says the same as YAML that is written from data."""
    content = data.decode(errors="replace")
    try:
        documents = text.load_all(content)
        to = _VERSIONS[len(data) % 4]
        converted = [convert.convert(each, to, documents).document for each in documents]
    except ValueError as error:
        assert str(error)
        return
    for after in (converted, documents, [*documents[1:], *documents[:1]]):
        written = kept_yaml.rewrite(content, documents, after)
        if written is None:
            continue
        left = [document for document in after if document is not None]
        assert text.load_all(written) == left
        # As PyYAML understands it, without our own bounds.
        assert [each for each in yaml.safe_load_all(written) if each is not None] == left
        # Of a file without documents nothing is left, and the user is told.
        if after is documents and documents:
            assert not kept_yaml.lost_comments(content, written), written


def _commented() -> list[bytes]:
    head = b"apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\n"
    claim = head + (
        b"# its name\nmetadata: {name: c}   # here\n\nspec:\n  devices:\n    requests:\n"
        b"    # the first\n    - name: r\n      # which class\n      deviceClassName: c # all\n"
        b"    # the end\n"
    )
    class_ = (
        b"apiVersion: resource.k8s.io/v1beta1\nkind: DeviceClass\nmetadata:\n  name: c\nspec:\n"
        b"  selectors:\n  # why\n  - cel:\n      expression: >-\n        # no comment\n        true\n"
    )
    slice_ = (
        b"kind: ResourceSlice\napiVersion: resource.k8s.io/v1beta1\nspec: # said\n  driver: d\n"
        b"  devices:\n  - name: g\n    basic:\n      capacity: {m: {value: 1Gi}} # large\n"
    )
    return [
        claim,
        class_,
        slice_,
        head + b"metadata: {name: c}\n# between\n---\n" + b"a: 'x'\n...\n",
        b"# head\na:\n- b\n- - c # d\n\n- e: |\n    # f\n\n  g: h\n# tail\n",
    ]


def _credential(data: bytes) -> None:
    """Reads what a credential program of a kubeconfig prints."""
    with contextlib.suppress(kube_errors.Unauthorized):
        credential, expiry = _program()._parse(data)
        assert credential.token.isascii()
        assert expiry is None or expiry < 1e12


@cache
def _program() -> exec_credentials.CredentialPlugin:
    asked = exec_credentials.ExecConfig(
        api_version="client.authentication.k8s.io/v1", command="program"
    )
    return exec_credentials.CredentialPlugin(asked, target.folder(), {})


def _credentials() -> list[bytes]:
    status: dict[str, Any] = {"token": "t", "expirationTimestamp": "2026-01-01T00:00:00Z"}
    certificate = {"clientCertificateData": "PEM", "clientKeyData": "PEM"}
    head = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    return [_encoded(head | {"status": each}) for each in (status, certificate, {})]


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
    examples = [whole]
    examples += [whole | {"chapters": [{"title": "c", "steps": [step]}]} for step in steps]

    tour = text.load((target.ROOT / "plugin/claimd/sim/demo/stories/tour.yaml").read_bytes())
    examples += [tour | {"chapters": [each], "about": ""} for each in tour["chapters"]]
    return [document for document in map(_encoded, examples) if len(document) < 2000]


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
    examples = []
    for name in ("true", "false", "error", "refused"):
        lines = (target.ROOT / f"tests/cases/cel/{name}.txt").read_bytes().splitlines()
        examples += [line for line in lines if line and not line.startswith(b"#")]
    return examples


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
    "comments": target.Target(
        read=_comments,
        parts=(kept_yaml,),
        examples=_commented,
        words=(
            b"# c",
            b"\n",
            b"\n\n",
            b"  ",
            b"- ",
            b": ",
            b"---\n",
            b"|\n",
            b">-\n",
            b"\t",
            b"\r\n",
        ),
        longest=300,
    ),
    "exec-credentials": target.Target(
        read=_credential,
        parts=(exec_credentials.CredentialPlugin._parse,),
        examples=_credentials,
        words=(b"+14:00", b"0001-01-01T00:00:00Z", b"9999-12-31T23:59:59-14:00"),
        documents=True,
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
