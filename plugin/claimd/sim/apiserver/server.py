"""The API server as a whole: its construction from options, its start and its end.

async with serve(Options()) as api:
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import random
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from claimd.common import durable, timestamps
from claimd.common.http_server import HttpRequest, HttpResponse, Respond, Server

from . import kinds
from .access import certificates
from .access.tokens import Tokens
from .catalog import Catalog
from .dispatch import Dispatch
from .handlers import pod_exec, pod_logs
from .storage import bootstrap
from .storage.housekeeping import Housekeeping
from .storage.registry import Registry
from .storage.store import Store
from .types.user import ServerSecrets

if TYPE_CHECKING:
    import ssl

    from .storage.disk import Disk

log = logging.getLogger(__name__)

# The letters of generated names, without vowels and letters that look alike.
SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a server: its release, address, limits and periods."""

    # The release of Kubernetes that the server simulates.
    profile: str = kinds.NEWEST
    host: str = "127.0.0.1"
    # 0 means that the system chooses the port.
    port: int = 0
    # Without it the token is in the address, which logs and lists of processes show.
    tls: bool = False
    # The number of changes that watches and continued lists may go back.
    window: int = 10_000
    # The most requests at the same time.
    max_in_flight: int = 400
    # Seconds.
    bookmark_interval: float = 60.0
    # Create default accounts and collect garbage in the background.
    housekeeping: bool = True
    # Remove terminating namespaces in the background, too, if no controller does.
    end_namespaces: bool = False
    # An SQLite file for the objects, from which a later server continues.
    db: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Listener:
    """The port of the server. It can be closed and opened again, and the objects stay."""

    server: Server
    host: str
    port: int
    # PEM. Empty without TLS.
    ca: str
    context: ssl.SSLContext | None

    @property
    def address(self) -> str:
        """The address, such as https://127.0.0.1:PORT."""
        scheme = "https" if self.context else "http"
        return f"{scheme}://{self.host}:{self.port}"

    async def close(self) -> None:
        """Ends all connections. New connections are refused."""
        await self.server.stop()

    async def open(self) -> None:
        """Listens again. Raises OSError if another process has taken the port."""
        await self.server.start(self.host, self.port, self.context)


class Api:
    """A running server. Clients use the address, and `registry` is for inspection."""

    def __init__(
        self, registry: Registry, dispatch: Dispatch, tokens: Tokens, listener: Listener
    ) -> None:
        self.registry, self.catalog, self._dispatch = registry, dispatch.catalog, dispatch
        self.listener = listener
        self.address = listener.address
        self.ca = listener.ca
        self.token = tokens.admin
        self._tokens = tokens

    @property
    def url(self) -> str:
        """The address for the administrator. Raises ValueError with TLS, as `url_as` does."""
        return self.url_as(self.token)

    def url_as(self, token: str) -> str:
        """Returns the address with the token in it, because clients without TLS send no token.

        Raises ValueError with TLS, where clients send the token in a header.
        """
        if self.ca:
            raise ValueError("with TLS the token is no part of an address: see kubeconfig")
        return f"{self.address}/as/{token}"

    def token_of(self, name: str, groups: Sequence[str] = ()) -> str:
        """Issues a token for a part of the control plane.

        Examples are system:kube-scheduler, and system:node:n in the group system:nodes.
        """
        return self._tokens.issue_for_user(name, groups)

    def serve_logs(self, logs: pod_logs.Logs, follow: pod_logs.Follow | None = None) -> None:
        """Makes `kubectl logs` show the result of `logs` for a namespace, a pod and a container.

        `follow` serves `kubectl logs -f`. Without it, that command ends after the present lines.
        """
        self._dispatch.logs, self._dispatch.follow_logs = logs, follow

    def serve_exec(self, execute: pod_exec.Execute) -> None:
        """Makes this function serve `kubectl exec`."""
        self._dispatch.execute = partial(pod_exec.execute, self.registry.store, execute)

    def kubeconfig(self, path: Path, token: str = "", namespace: str = "default") -> Path:
        """Writes a kubeconfig file, which only its owner may read. It is JSON, which is valid YAML.

        Replaces an existing file. Raises OSError if it cannot be written, or if the path is
        something other than a file.
        """
        token = token or self.token
        cluster, user = {"server": self.address}, {"token": token}
        if self.ca:
            cluster["certificate-authority-data"] = base64.b64encode(self.ca.encode()).decode()
        else:
            cluster, user = {"server": self.url_as(token)}, {}

        context = {"cluster": "sim", "user": "sim", "namespace": namespace}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sim", "cluster": cluster}],
            "users": [{"name": "sim", "user": user}],
            "contexts": [{"name": "sim", "context": context}],
            "current-context": "sim",
        }
        # A link may lead to a file that others can read. Anything else that is no file is a
        # mistake.
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise FileExistsError(f"there is something that is no file: {path}")

        text = f"{json.dumps(document, indent=2)}\n"
        temporary = str(path.with_name(f".{path.name}.new"))
        durable.replace(str(path), text.encode(), temporary=temporary, mode=0o600, sync=False)
        return path


@contextlib.asynccontextmanager
async def serve(options: Options) -> AsyncIterator[Api]:
    """Runs a server in the current event loop until the context ends.

    Raises OSError if it cannot listen. Each request is answered in one step, so a client waits no
    longer than that.
    """
    catalog = Catalog(options.profile)
    store = Store(options.window)
    secrets, disk = _open_disk(options, store)
    registry = Registry(
        store, timestamps.now, lambda: str(uuid.uuid4()), _name_suffix, options.profile
    )
    tokens = Tokens(secrets, store, time.time)
    ca, context = "", None
    if options.tls:
        # Derive the CA from the stored secret, so that clients of an earlier server trust this one.
        made = certificates.make(secrets.signing_key, options.host)
        ca, context = made.ca, certificates.context(made)

    # Create the objects that every cluster has before the first client connects.
    housekeeping = Housekeeping(registry, catalog, options.end_namespaces)
    bootstrap.make(registry, catalog)
    housekeeping.make_accounts()
    housekeeping.definitions.reconcile()
    store.listeners.append(housekeeping.note_change)

    dispatch = Dispatch(catalog, registry, tokens, time.time, options.bookmark_interval)
    dispatch.token_in_path = not options.tls
    server = Server(
        _respond_durably(dispatch.respond, disk) if disk else dispatch.respond,
        dispatch.too_many_requests,
        options.max_in_flight,
        dispatch.refuse,
    )
    port = await server.start(options.host, options.port, context)
    dispatch.non_resource.address = f"{options.host}:{port}"

    running = asyncio.create_task(housekeeping.run() if options.housekeeping else asyncio.sleep(0))
    running.add_done_callback(_housekeeping_ended)
    try:
        listener = Listener(server=server, host=options.host, port=port, ca=ca, context=context)
        yield Api(registry, dispatch, tokens, listener)
    finally:
        running.cancel()
        await server.stop()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        if disk:
            disk.close()


def _open_disk(options: Options, store: Store) -> tuple[ServerSecrets, Disk | None]:
    """Opens the file of an earlier server, if there is one, and loads its objects."""
    if not options.db:
        return ServerSecrets.new(), None
    # SQLite is loaded only for a server with a file.
    from .storage.disk import Disk

    loop = asyncio.get_running_loop()
    disk = Disk(options.db, options.profile, loop.call_soon)
    secrets = disk.load(store) or ServerSecrets.new()
    disk.store_secrets(secrets)
    store.listeners.append(disk.record_change)
    return secrets, disk


def _respond_durably(respond: Respond, disk: Disk) -> Respond:
    """Wraps `respond` so that changes are on disk before the client gets the response."""

    def respond_and_commit(request: HttpRequest) -> HttpResponse:
        response = respond(request)
        disk.commit()
        return response

    return respond_and_commit


def _housekeeping_ended(running: asyncio.Task[None]) -> None:
    """Logs an error of housekeeping, which otherwise ends only with the server.

    Without housekeeping, garbage is never collected, so its end must be visible.
    """
    if running.cancelled():
        return
    error = running.exception()
    if error:
        log.error("housekeeping has ended", exc_info=error)


def _name_suffix() -> str:
    return "".join(random.choices(SUFFIX_LETTERS, k=5))  # noqa: S311 - names, no secrets
