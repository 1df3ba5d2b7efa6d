"""The outside observer: reads the folders of a node and says what is not as promised, with no code
of claimd.node.prepare.checkpoint.

Asks nobody and changes nothing; what claims ought to be there is told by who asks.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from claimd.common import names
from tests.support.worlds import DRIVER

from .world import FOREIGN, Broken

UNCLEARED = ".gone"
# A write that its writer died of is tidied away by the next start.
KNOWN = re.compile(
    r"claims|claims\.lock|health\.json|instances|metadata|\.?publisher(\.[\w-]+)?|dra(-[\w-]+)?\.sock"
)


def observe(
    plugin: Path,
    cdi: Path,
    must: Collection[str],
    may: Collection[str] = (),
    unbound: Collection[str] = (),
) -> set[str]:
    """Raises Broken unless exactly the claims of `must`, and some of `may`, are recorded and have a
    CDI file and metadata, whole, and nothing else of ours is there. Those of `unbound` may lack the
    files: their GPU has no nodes yet, or none any more. By uid. Says what is recorded.
    """
    recorded = set(records(plugin / "claims"))
    if missing := sorted(set(must) - recorded):
        raise Broken(f"lost: no checkpoint of {', '.join(missing)}, which was prepared")
    if both := sorted(set(must) & uncleared(plugin / "claims")):
        raise Broken(f"unprepared, by its file, and prepared: {', '.join(both)}")
    if surplus := sorted(recorded - set(must) - set(may)):
        raise Broken(f"left over: a checkpoint of {', '.join(surplus)}, which is not prepared")
    written = set(specs(cdi))
    may_lack = recorded & set(unbound) - written
    if written != recorded - may_lack:
        raise Broken(
            f"recorded are {sorted(recorded)}, but CDI files are there for {sorted(written)}"
        )
    described = set(metadata(plugin / "metadata"))
    may_lack = recorded & set(unbound) - described
    if described != recorded - may_lack:
        raise Broken(
            f"recorded are {sorted(recorded)}, but metadata is there for {sorted(described)}"
        )
    if strange := [name for name in _entries(plugin) if not KNOWN.fullmatch(name)]:
        raise Broken(f"left in the plugin's folder: {', '.join(strange)}")
    return recorded


def records(folder: Path) -> Iterator[str]:
    """The uids; Broken if a file is no whole checkpoint."""
    for name in _entries(folder):
        if name.endswith(UNCLEARED):
            continue
        if not name.endswith(".json"):
            raise Broken(f"left among the checkpoints: {name}")
        try:
            yield record(folder / name)
        except FileNotFoundError:
            # Unprepared in this moment. Callers say which claims must be there.
            continue


def record(path: Path) -> str:
    """Returns the uid in a checkpoint. Raises Broken if the checkpoint is damaged."""
    text = path.read_bytes()
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode != 0o600:
        raise Broken(
            f"the checkpoint {path.name} has the mode {mode:o}: others may read or write it"
        )
    body, mark, tail = text.rpartition(b',\n "checksum": "sha256:')
    if not mark or tail[:64].decode(errors="replace") != hashlib.sha256(body).hexdigest():
        raise Broken(f"the checkpoint {path.name} is damaged, {len(text)} bytes: {text[:60]!r}…")
    uid: str = json.loads(text)["claim"]["uid"]
    if path.name != f"{uid}.json":
        raise Broken(f"the checkpoint {path.name} is about {uid}")
    return uid


def uncleared(folder: Path) -> set[str]:
    """The claims that were given back, and of which the status has yet to be cleared."""
    return {name.removesuffix(UNCLEARED) for name in _entries(folder) if name.endswith(UNCLEARED)}


def specs(folder: Path) -> Iterator[str]:
    """The uids; Broken if a file of ours is none that a runtime takes, or there is any other beside
    the foreign one.
    """
    entries = _entries(folder)
    if FOREIGN not in entries or (folder / FOREIGN).read_text() != "{}":
        raise Broken("the CDI file of somebody else was touched")
    prefix = names.cdi_prefix(DRIVER)
    for name in entries:
        if name == FOREIGN:
            continue
        if not (name.startswith(prefix) and name.endswith(".json")):
            raise Broken(f"left in the CDI folder: {name}")
        uid = name[len(prefix) : -len(".json")]
        text = (folder / name).read_text()
        try:
            devices = [device["name"] for device in json.loads(text)["devices"]]
        except (ValueError, KeyError):
            raise Broken(
                f"the CDI file of {uid} is damaged, {len(text)} bytes: {text[:60]!r}…"
            ) from None
        if not all(device.startswith(uid) for device in devices):
            raise Broken(f"the CDI file of {uid} has the devices {devices}")
        yield uid


def metadata(folder: Path) -> Iterator[str]:
    """The uids; Broken if a file is not whole in each version, or of no claim."""
    for name in _entries(folder):
        uid, underscore, request = name.removesuffix(".json").rpartition("_")
        if not underscore or not request or not name.endswith(".json"):
            raise Broken(f"left among the metadata: {name}")
        text = (folder / name).read_text()
        try:
            documents = [json.loads(line) for line in text.splitlines()]
            about = {document["metadata"]["uid"] for document in documents}
        except (ValueError, KeyError):
            documents, about = [], set()
        if len(documents) != 2 or about != {uid}:
            raise Broken(f"the metadata {name} is damaged, {len(text)} bytes: {text[:60]!r}…")
        yield uid


def instances(plugin: Path, living: int) -> None:
    marks = _entries(plugin / "instances")
    if len(marks) > living:
        raise Broken(f"{living} instances live, {len(marks)} are there: {', '.join(marks)}")


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
