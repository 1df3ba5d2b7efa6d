"""What reads things of others, each with examples to begin from.

A target returns for everything that it understands and for every refusal that is its contract. Any
other exception is a mistake, and so is taking long: what is fed is small.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import random
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import h11
import msgspec
import yaml

from devices import capture, fake, faults, host_cdi, kmsg, ld_so_cache, scan, sysfs, tar, uevents
from devices.gpu import Inventory, Roots
from devices.host_files import HostFiles
from plugin import cel, config, endpoint, errors, plain_text
from plugin.api import text
from plugin.api.objects import convert
from plugin.api.resource import ResourceClaim
from plugin.explain import manifests
from plugin.kube import client, http1, kubeconfig, resources, watch
from plugin.kube import errors as kube_errors
from plugin.kube.client_config import Credential
from plugin.prepare import cdi, checkpoint, plan
from plugin.prepared import PreparedClaim
from plugin.sim.apiserver import catalog, dispatch
from plugin.sim.apiserver.access.tokens import Tokens
from plugin.sim.apiserver.storage import bootstrap
from plugin.sim.apiserver.storage.registry import Registry
from plugin.sim.apiserver.storage.store import Store
from plugin.sim.apiserver.types.status_errors import StatusError
from plugin.sim.apiserver.types.user import ServerSecrets
from plugin.sim.apiserver.wire import http, protobuf
from plugin.sim.demo import story
from plugin.sim.runtime import cdi_spec
from tests.support import worlds

from . import reach

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests/cases/fuzz"


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Target:
    read: Callable[[bytes], None]
    examples: Callable[[], list[bytes]]
    # Modules, classes and functions that read what is fed: all of their lines should be reached.
    parts: tuple[Any, ...]
    words: tuple[bytes, ...] = ()


def examples(name: str) -> list[bytes]:
    """Those that are made, and those that were found."""
    found = [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
    return [*TARGETS[name].examples(), *found]


def words(name: str) -> list[bytes]:
    """Those of the target, and those that its code knows."""
    target = TARGETS[name]
    return [*target.words, *sorted(reach.words(target.parts))]


@cache
def _folder() -> Path:
    """One for all inputs of this process, that goes with it; in memory where there is such a place."""
    memory = Path("/dev/shm")
    made = tempfile.TemporaryDirectory(
        prefix="claimd-fuzz-", dir=memory if memory.is_dir() else None
    )
    _kept.append(made)
    return Path(made.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []


def _file(name: str, data: bytes) -> Path:
    path = _folder() / name
    path.write_bytes(data)
    return path


# ---------------------------------------------------------------- the API server's answers

_INVENTORY = Inventory.of([worlds.gpu(0), worlds.gpu(1, vendor="nvidia")])


def _claim(data: bytes) -> None:
    try:
        claim = resources._decode(data, ResourceClaim, "a claim")
    except kube_errors.Malformed:
        return
    # The kubelet's uid was checked at the door, and a claim of another one is refused.
    if claim.metadata.uid not in ("uid-c", "uid-d", "uid-e"):
        return
    arguments: dict[str, Any] = {"driver": worlds.DRIVER, "pool": worlds.NODE, "neighbours": ()}
    try:
        prepared = plan.plan(claim, inventory=_INVENTORY, now="2026-01-01T00:00:00Z", **arguments)
        spec = cdi.build(prepared, _INVENTORY)
    except errors.ClaimError as error:
        assert plain_text.one_line(str(error)) == str(error), "people read control characters"
        return

    # What is promised to be prepared can be kept, and read by a container runtime.
    kept = checkpoint.Checkpoint(version=1, boot_id="b", claim=prepared)
    assert checkpoint.decode(checkpoint.encode(kept)) == kept
    if prepared.devices:  # else no spec is written
        cdi_spec.parse(spec.decode())


def _claims() -> list[bytes]:
    first = _INVENTORY.gpus[0].name
    second = _INVENTORY.gpus[1].name
    configured = worlds.opaque(worlds.gpu_config(environment={"A": "b"}, permissions="rw"))
    of_mps = worlds.opaque(worlds.gpu_config(mps="/run/nvidia-mps"), "FromClass")
    share: dict[str, Any] = {"shareID": "s1", "consumedCapacity": {"memory": "20Gi"}}
    objects = [
        worlds.claim_object("c", worlds.result(first), config=[configured]),
        worlds.claim_object("d", worlds.result(first, "a"), worlds.result(first, "b/c")),
        worlds.claim_object("e"),
        worlds.claim_object("c", worlds.result(second, **share), config=[of_mps]),
    ]
    return [json.dumps(obj).encode() for obj in objects]


def _slices(data: bytes) -> None:
    async def find() -> watch.Collection:
        raise AssertionError

    # An informer decides on events as they come; nobody is asked.
    informer = watch.Informer(None, find)  # type: ignore[arg-type]
    version, _, line = data.partition(b"\n")
    collection = resources._Slices(version=version.decode(errors="replace"), query={})
    with contextlib.suppress(kube_errors.ApiError):
        informer._apply(collection, line)


def _events() -> list[bytes]:
    spec: dict[str, Any] = {
        "driver": worlds.DRIVER,
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"a": {"string": "b"}}}],
    }
    old = spec | {"devices": [{"name": "gpu-0", "basic": {"attributes": {"a": {"int": 1}}}}]}
    metadata = {"name": "s", "resourceVersion": "7"}
    status = {"kind": "Status", "code": 410, "message": "gone", "details": {"retryAfterSeconds": 1}}
    rows = [
        ("v1", {"type": "ADDED", "object": {"metadata": metadata, "spec": spec}}),
        ("v1beta1", {"type": "MODIFIED", "object": {"metadata": metadata, "spec": old}}),
        ("v1", {"type": "DELETED", "object": {"metadata": metadata, "spec": spec}}),
        ("v1", {"type": "BOOKMARK", "object": {"metadata": metadata}}),
        ("v1", {"type": "ERROR", "object": status}),
    ]
    return [f"{version}\n{json.dumps(event)}".encode() for version, event in rows]


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """It never runs: who reads a connection that has said all waits for nothing."""
    return asyncio.new_event_loop()


def _response(data: bytes) -> None:
    """Over a connection that has said all that it will say."""
    reader = asyncio.StreamReader(loop=_loop())
    reader.feed_data(data)
    reader.feed_eof()
    connection = client._Connection(reader, None, Credential(), 1 << 20)  # type: ignore[arg-type]
    connection.http.expect()
    try:
        response = _finished(connection.response())
        body = _finished(connection.body())
    except (http1.ProtocolError, kube_errors.Malformed, client._Unanswered):
        return
    error = kube_errors.from_answer("GET /", response.status, client._headers(response), body)
    assert 0 <= (error.retry_after or 0.0) <= kube_errors.LONGEST_RETRY_AFTER


def _finished(waiting: Coroutine[Any, None, T]) -> T:
    """What it returns; it gives the turn away at most, and that is taken at once."""
    while True:
        try:
            waiting.send(None)
        except StopIteration as end:
            return end.value


def _responses() -> list[bytes]:
    body = (
        b'{"kind":"Status","message":"m","reason":"Conflict","details":{"causes":[{"field":"f"}]}}'
    )
    head = f"HTTP/1.1 409 Conflict\r\nContent-Length: {len(body)}\r\nRetry-After: 7\r\n\r\n"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{}\r\n\r\n0\r\n\r\n"
    return [head.encode() + body, chunked, b"HTTP/1.1 103 Early Hints\r\n\r\n" + chunked]


# ---------------------------------------------------------------- requests to us


def _probe(data: bytes) -> None:
    answer = endpoint.Endpoint("", str)._response(data[: endpoint.LONGEST_REQUEST])
    assert answer.startswith(b"HTTP/1.1 ")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert body == b"" or f"Content-Length: {len(body)}\r\n".encode() in head + b"\r\n"


@cache
def _server() -> dispatch.Dispatch:
    known = catalog.Catalog("1.37")
    store = Store(1000)
    registry = Registry(
        store, lambda: "2026-01-01T00:00:00Z", lambda: str(random.random()), lambda: "abcde", "1.37"
    )
    bootstrap.make(registry, known)
    made = ServerSecrets(admin_token="t", signing_key=b"k")
    return dispatch.Dispatch(known, registry, Tokens(made, store, lambda: 0.0), lambda: 0.0, 60.0)


def _request(data: bytes) -> None:
    # h11 compares the length with the body, and that is not ours to try.
    head, end, content = data.partition(b"\r\n\r\n")
    right = b"Content-Length: %d" % len(content)
    data = re.sub(rb"(?im)^Content-Length: \d+", right, head) + end + content

    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    body = b""
    try:
        head = connection.next_event()
        if not isinstance(head, h11.Request):
            return
        while isinstance(event := connection.next_event(), h11.Data):
            body += event.data
    except h11.RemoteProtocolError:
        return
    request = http._request(head, body)
    response = _server().respond(request)
    assert response.status != 500, response


def _requests() -> list[bytes]:
    slices = "/apis/resource.k8s.io/v1/resourceslices"
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    devices = {"requests": [{"name": "g", "exactly": {"deviceClassName": "c"}}]}
    claim = {"metadata": {"name": "c", "labels": {"a": "b"}}, "spec": {"devices": devices}}
    patch = [{"op": "add", "path": "/metadata/labels/x", "value": "y"}]
    rows: list[tuple[str, str, str, object]] = [
        (
            "GET",
            f"{slices}?limit=2&labelSelector=a%3Db,c!=d&fieldSelector=spec.driver%3Dx",
            "",
            None,
        ),
        ("GET", f"{slices}?watch=1&resourceVersion=0&timeoutSeconds=1", "", None),
        ("GET", "/openapi/v3/apis/resource.k8s.io/v1", "", None),
        ("POST", f"{claims}?fieldValidation=Strict&dryRun=All", "application/json", claim),
        ("PATCH", f"{claims}/c?fieldManager=m", "application/apply-patch+yaml", claim),
        ("PATCH", f"{claims}/c", "application/json-patch+json", patch),
        ("PATCH", f"{claims}/c/status", "application/merge-patch+json", {"status": {}}),
        ("PUT", f"{claims}/c", "application/json", claim),
        (
            "DELETE",
            f"{claims}/c?propagationPolicy=Background",
            "application/json",
            {"kind": "DeleteOptions"},
        ),
    ]
    made = []
    for method, path, kind, content in rows:
        body = json.dumps(content).encode() if content is not None else b""
        head = f"{method} {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n"
        head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        made.append(head.encode() + body)
    return made


def _protobuf(data: bytes) -> None:
    with contextlib.suppress(StatusError):
        protobuf.decode(data)


def _messages() -> list[bytes]:
    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    metadata = field(1, field(1, b"name") + field(11, field(1, b"label") + field(2, b"value")))
    kinds = (("v1", "Pod"), ("v1", "ConfigMap"), ("resource.k8s.io/v1", "ResourceClaim"))
    made = []
    for version, kind in kinds:
        type_meta = field(1, version.encode()) + field(2, kind.encode())
        made.append(protobuf.MAGIC + field(1, type_meta) + field(2, metadata))
    return made


# ---------------------------------------------------------------- files of users


def _config(data: bytes) -> None:
    path = _file("config", data)
    with contextlib.suppress(errors.UsageError):
        config.load({"config": path}, {})


def _configs() -> list[bytes]:
    return [
        b'{"node-name": "n", "rescan": 5, "exclude": ["console"], "vfio": true}',
        b"node-name: n\nrescan: 5\nexclude: [console]\nvfio: true\nendpoint: ':8081'\n",
        b'{"driver-name": "gpu.claimd.dev", "taint-failed": "NoExecute", "health-interval": 1.5}',
    ]


def _kubeconfig(data: bytes) -> None:
    with contextlib.suppress(errors.UsageError):
        kubeconfig.load(_file("kubeconfig", data))


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


def _files() -> list[bytes]:
    files = sorted((ROOT / "deploy/base").rglob("*.yaml"))
    return [path.read_bytes() for path in files if path.stat().st_size < 4000]


def _documents() -> list[bytes]:
    """As JSON, which is read a hundred times faster; YAML has a target of its own."""
    made = []
    for path in sorted((ROOT / "deploy").rglob("*.yaml")):
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
        *_files()[:6],
        b"- &a [1, 0x1f, 0o17, 0b1, 1_000, 1:30, .inf, -.inf, .nan, 1e3]\n- *a\n- <<: {a: ~}\n",
        b"a: |-\n  text\n   more\nb: >+\n  folded\n\n  lines\n? complex\n: value\n",
        b"--- !!str 1\n...\n%YAML 1.1\n---\n'it''s': \"\\x41\\u00e9\\n\" # no\n",
        b"yes: on\nno: off\nwhen: 2026-01-01T00:00:00Z\nset: !!set {a, b}\nb: !!binary aGk=\n",
    ]


def _story(data: bytes) -> None:
    with contextlib.suppress(errors.UsageError):
        story.parse(data.decode(errors="replace"), "s")


def _stories() -> list[bytes]:
    tour = ROOT / "plugin/sim/demo/stories/tour.yaml"
    small = b"title: t\nnodes: [{name: a, gpus: ['nvidia:l4']}]\nchapters: [{title: c, steps: [{say: x}]}]\n"
    read = [small, tour.read_bytes()]
    return [*(json.dumps(text.load(one)).encode() for one in read), small]


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
        lines = (ROOT / f"tests/cases/cel/{name}.txt").read_bytes().splitlines()
        made += [line for line in lines if line and not line.startswith(b"#")]
    return made


# ---------------------------------------------------------------- the node


def _capture(data: bytes) -> None:
    prison = _folder() / "prison"
    shutil.rmtree(prison, ignore_errors=True)
    inside = prison / "inside"
    inside.mkdir(parents=True)
    precious = prison / "precious"
    precious.write_text("before")
    try:
        replay = capture.read(_file("capture", _with_sums(data)), inside)
        scan.scan(replay.roots)
    except ValueError:
        pass
    finally:
        capture.stop_replay()
    assert precious.read_text() == "before"
    assert sorted(path.name for path in prison.iterdir()) == ["inside", "precious"]
    real = str(inside.resolve())
    for path in inside.rglob("*"):
        if path.is_symlink() and path.exists():
            assert str(path.resolve()).startswith(real), path


def _captures() -> list[bytes]:
    made = []
    tree = _folder() / "tree"
    if not tree.exists():
        fake.write(tree, fake.parse(["nvidia:l4"]))
    roots = Roots.under(tree)
    file = _folder() / "whole.tar"
    capture.write(file, roots, lambda: scan.scan(roots))
    made.append(file.read_bytes())

    about = {
        "format": 1,
        "roots": {"sys": "/sys", "proc": "/proc", "host": ""},
        "errors": {"sys/a": 5},
    }
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
            content = json.dumps(about).encode()
            first = tarfile.TarInfo(capture.ABOUT)
            first.size = len(content)
            archive.addfile(first, io.BytesIO(content))
            for name, target in (
                ("sys/a", "../proc/x"),
                ("sys/b/c", "../../a"),
                ("proc/x", "../sys/b"),
            ):
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                archive.addfile(entry)
        made.append(stream.getvalue())
    return made


def _tar(data: bytes) -> None:
    """What is in it, without a disk. The sums of the headers are made right."""
    with contextlib.suppress(ValueError):
        total = sum(len(entry.content) for entry in tar.entries(_with_sums(data)))
        assert total <= len(data)


def _with_sums(data: bytes) -> bytes:
    fixed = bytearray(data)
    for at in range(0, len(fixed) - 511, 512):
        if any(fixed[at : at + 512]):
            fixed[at + 148 : at + 156] = b" " * 8
            fixed[at + 148 : at + 156] = b"%06o\0 " % sum(fixed[at : at + 512])
    return bytes(fixed)


def _small_captures() -> list[bytes]:
    return [made for made in _captures() if len(made) < 20_000]


def _kmsg(data: bytes) -> None:
    lines = data.decode(errors="replace")
    kmsg.parse_records(lines.split("\n"), 0.0)
    kmsg.parse_dmesg(lines, 0.0)


def _logs() -> list[bytes]:
    return [
        b"6,1,5000,-;NVRM: Xid (PCI:0000:11:00): 79, pid=1\n SUBSYSTEM=pci\n DEVICE=+pci:0000:11:00.0\n",
        b"<6>[    1.000000] one\n<4>[    1.000001][ T12] two\n",
    ]


def _uevent(data: bytes) -> None:
    event = uevents.parse(data)
    assert isinstance(event.address, str)


def _uevents() -> list[bytes]:
    path = "/devices/pci0000:10/0000:11:00.0"
    return [
        uevents.message("change", f"{path}/drm/card0", "drm", WEDGED="rebind"),
        uevents.message("add", path, "pci"),
    ]


def _host_cdi(data: bytes) -> None:
    host = _folder() / "host"
    for name in ("nvidia.json", "nvidia.yaml"):
        (host / "etc/cdi").mkdir(parents=True, exist_ok=True)
        (host / "etc/cdi" / name).write_bytes(data)
    host_cdi.devices(HostFiles(str(host)), [])
    with contextlib.suppress(cdi_spec.InvalidSpec):
        cdi_spec.parse(data.decode(errors="replace"))


def _specs() -> list[bytes]:
    device = {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}
    edits = {
        "env": ["A=b"],
        "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro"]}],
    }
    hook = {"hookName": "createContainer", "path": "/bin/x", "args": ["x"]}
    spec = {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/gpu",
        "devices": [device],
        "containerEdits": edits | {"hooks": [hook]},
    }
    return [json.dumps(spec).encode(), yaml.safe_dump(spec, sort_keys=False).encode()]


def _cache(data: bytes) -> None:
    ld_so_cache.entries(data)


def _caches() -> list[bytes]:
    text_ = b"libcuda.so.1\0/usr/lib/libcuda.so.1\0"
    start = 48 + 24
    entry = (0x0303).to_bytes(4, "little") + start.to_bytes(4, "little")
    entry += (start + 13).to_bytes(4, "little") + bytes(12)
    head = b"glibc-ld.so.cache1.1" + (1).to_bytes(4, "little") + len(text_).to_bytes(4, "little")
    return [head + bytes(48 - len(head)) + entry + text_]


def _checkpoint(data: bytes) -> None:
    for content in (data, _with_checksum(data)):
        with contextlib.suppress(ValueError):
            checkpoint.decode(content)


def _with_checksum(data: bytes) -> bytes:
    """What a disk does not do, and somebody who writes there may."""
    body = data.rpartition(checkpoint._CHECKSUM)[0]
    return body + checkpoint._CHECKSUM + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def _checkpoints() -> list[bytes]:
    claim = worlds.claim("c", worlds.result(_INVENTORY.gpus[0].name))
    prepared: PreparedClaim = plan.plan(
        claim,
        driver=worlds.DRIVER,
        pool=worlds.NODE,
        inventory=_INVENTORY,
        neighbours=(),
        now="2026-01-01T00:00:00Z",
    )
    return [checkpoint.encode(checkpoint.Checkpoint(version=1, boot_id="b", claim=prepared))]


def _faults(data: bytes) -> None:
    tree = _folder() / "sick"
    if not tree.exists():
        fake.write(tree, fake.parse(["nvidia:l4"]))
    (tree / ".claimd-faults").write_bytes(data)
    with contextlib.suppress(ValueError, OSError):
        faults.inject(tree, "heal", "0000:11:00.0")


def _sysfs(data: bytes) -> None:
    path = str(_file("value", data))
    notes: list[str] = []
    sysfs.text(path, notes)
    sysfs.decimal(path, notes)
    sysfs.hexadecimal(path, notes)
    sysfs.lines(path, notes)

    # In the place of a file that is chosen by the data: the same input does the same again.
    dice = random.Random(data)
    tree, places = _trees()[dice.randrange(3)]
    place = dice.choice(places)
    before = place.read_bytes()
    try:
        place.write_bytes(data)
        inventory = scan.scan(Roots.under(tree))
        assert isinstance(inventory, Inventory)
        for gpu in inventory.gpus:
            assert all(note.isprintable() for note in gpu.notes), gpu.notes
    finally:
        place.write_bytes(before)


@cache
def _trees() -> list[tuple[Path, list[Path]]]:
    """One of each vendor, with the files of its devices."""
    made = []
    for model in ("amd:mi300x", "nvidia:l4", "intel:b580"):
        tree = _folder() / f"odd-{model.partition(':')[0]}"
        fake.write(tree, fake.parse([model]))
        places = sorted(path for path in (tree / "sys/devices").rglob("*") if path.is_file())
        for place in places:
            place.chmod(0o644)
        made.append((tree, places))
    return made


TARGETS = {
    "claims": Target(
        read=_claim,
        parts=(resources._decode, plan, cdi, checkpoint),
        examples=_claims,
        words=(
            b'"opaque"',
            b'"parameters"',
            b'"requests"',
            b'"environment"',
            b"LD_PRELOAD",
            b'"shareID"',
        ),
    ),
    "slices": Target(
        read=_slices,
        parts=(resources._Slices, watch.Informer._apply, kube_errors),
        examples=_events,
        words=(b'"spec"', b'"basic"', b"v1alpha3\n"),
    ),
    "responses": Target(
        read=_response,
        parts=(http1, client._Connection, client._headers, kube_errors),
        examples=_responses,
        words=(b"Content-Length: ", b"Retry-After: ", b"chunked"),
    ),
    "probes": Target(
        read=_probe,
        parts=(endpoint.Endpoint._response,),
        examples=lambda: [b"GET /livez HTTP/1.1\r\n\r\n"],
        words=(b"HEAD ", b"/metrics?"),
    ),
    "requests": Target(
        read=_request,
        parts=(http._request, dispatch),
        examples=_requests,
        words=(b"fieldSelector=", b"continue=", b"application/yaml"),
    ),
    "protobuf": Target(
        read=_protobuf,
        parts=(protobuf,),
        examples=_messages,
        words=(b"\x0a\x00", b"\xff\xff\xff\xff\x0f"),
    ),
    "config": Target(
        read=_config,
        parts=(config,),
        examples=_configs,
        words=(b"rescan: ", b"include: ", b"inf", b".nan"),
    ),
    "kubeconfig": Target(
        read=_kubeconfig,
        parts=(kubeconfig,),
        examples=_kubeconfigs,
        words=(b"server: ", b"http://[", b"exec:"),
    ),
    "manifests": Target(
        read=_manifests,
        parts=(manifests, convert, text),
        examples=_documents,
        words=(b"kind: ", b"spec: ", b"---\n"),
    ),
    "yaml": Target(
        read=_yaml,
        parts=(text,),
        examples=_syntax,
        words=(b"!!", b"&b ", b"*b", b"---\n", b"? ", b"- ", b"  ", b"|\n", b">\n", b"%TAG "),
    ),
    "stories": Target(
        read=_story, parts=(story,), examples=_stories, words=(b"wait: ", b"fault: ", b"apply: ")
    ),
    "cel": Target(
        read=_cel,
        parts=(cel,),
        examples=_expressions,
        words=(b"device.", b".all(x, ", b"quantity('", b" && ", b" ? ", b"matches('", b"cel.bind("),
    ),
    "capture": Target(
        read=_capture,
        parts=(capture, tar),
        examples=_captures,
        words=(b"ustar\x00", b"x", b"L", b"2"),
    ),
    "tar": Target(
        read=_tar,
        parts=(tar,),
        examples=_small_captures,
        words=(b"ustar\x00", b"30 path=../../x\n", b"77777777777"),
    ),
    "kmsg": Target(
        read=_kmsg,
        parts=(kmsg,),
        examples=_logs,
        words=(b"6,", b",-;", b"<6>[", b"]", b" DEVICE=+pci:"),
    ),
    "uevents": Target(
        read=_uevent, parts=(uevents.parse,), examples=_uevents, words=(b"ACTION=", b"DEVPATH=")
    ),
    "cdi": Target(
        read=_host_cdi,
        parts=(host_cdi, cdi_spec),
        examples=_specs,
        words=(b"kind: ", b"name: ", b"path: /dev/nvidia0"),
    ),
    "ld-cache": Target(
        read=_cache,
        parts=(ld_so_cache,),
        examples=_caches,
        words=(b"glibc-ld.so.cache1.1", b"\xff" * 4),
    ),
    "checkpoints": Target(
        read=_checkpoint, parts=(checkpoint,), examples=_checkpoints, words=(b'"uid"', b'"devices"')
    ),
    "faults": Target(
        read=_faults,
        parts=(faults,),
        examples=lambda: [b'{"0000:11:00.0": {"vendor": ["0x10de\\n", 33060], "new": null}}'],
    ),
    "sysfs": Target(
        read=_sysfs,
        parts=(sysfs,),
        examples=lambda: [b"0x10de\n", b"7\n", b"GPU 1\n", b"a 1\nb 2\n"],
        words=(b"0x", b"-"),
    ),
}

assert msgspec  # the reader of most of these
