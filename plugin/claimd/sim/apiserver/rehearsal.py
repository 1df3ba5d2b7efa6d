"""A dry run that shows whether a release would accept an object, on a server without clients."""

from __future__ import annotations

import functools
import time
import uuid

import msgspec

from claimd.common import timestamps
from claimd.common.http_server import HttpRequest
from claimd.kubernetes.api.document import Document

from . import kinds
from .access.tokens import Tokens
from .catalog import Catalog, ServedVersion
from .dispatch import Dispatch
from .storage import bootstrap
from .storage.registry import Registry
from .storage.store import Store
from .types.user import ServerSecrets

# A namespace that every server has.
_NAMESPACE = "default"
# The metadata that is kept. All other metadata belongs to the cluster of the object.
_KEPT = ("name", "generateName", "labels", "annotations")


class Rehearsal:
    """The API server of one release, on which each object is created as a dry run."""

    def __init__(self, release: str) -> None:
        self.release = release
        self._catalog = Catalog(release)
        store, secrets = Store(1), ServerSecrets.new()
        registry = Registry(
            store, timestamps.now, lambda: str(uuid.uuid4()), lambda: "00000", release
        )
        tokens = Tokens(secrets, store, time.time)
        bootstrap.make(registry, self._catalog)
        self._dispatch = Dispatch(self._catalog, registry, tokens, time.time, 60.0)
        self._token = tokens.admin

    def find_served_version(self, document: Document) -> ServedVersion | None:
        """Returns the served version that the object is written in, or None."""
        group, _, version = str(document["apiVersion"]).rpartition("/")
        for served in self._catalog.served_versions(group, version):
            if served.kind.resource.kind == document["kind"]:
                return served
        return None

    def refusal(self, document: Document, served: ServedVersion) -> str:
        """Returns the message of the error with which a create fails; empty if it succeeds."""
        kind = served.kind
        metadata = document.get("metadata") or {}
        kept = {key: metadata[key] for key in _KEPT if key in metadata}
        path = f"/apis/{served.api_version}/{kind.resource.plural}"
        if kind.namespaced:
            path = f"/apis/{served.api_version}/namespaces/{_NAMESPACE}/{kind.resource.plural}"

        # Send a whole request, so that the answer is exactly that of the server.
        answer = self._dispatch.respond(
            HttpRequest(
                "POST",
                path,
                {"dryRun": ["All"]},
                {"authorization": f"Bearer {self._token}", "content-type": "application/json"},
                msgspec.json.encode(document | {"metadata": kept}),
            )
        )
        if answer.status < 300:
            return ""
        return str(msgspec.json.decode(answer.body)["message"])


def refusal(document: Document) -> tuple[str, str]:
    """Returns the newest release that serves the object's version, and why it refuses the object.

    Releases that are not out yet do not count.

    Both are "" if that release accepts the object, or if no release serves the version.
    """
    known = list(kinds.RELEASES)
    for release in reversed(known[: known.index(kinds.NEWEST) + 1]):
        rehearsal = _of_release(release)
        served = rehearsal.find_served_version(document)
        if served is not None:
            why = rehearsal.refusal(document, served)
            return (release, why) if why else ("", "")
    return "", ""


@functools.cache
def _of_release(release: str) -> Rehearsal:
    return Rehearsal(release)
