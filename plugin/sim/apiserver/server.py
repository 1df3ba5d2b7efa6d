"""The server as a whole: built from its options, started, stopped. `async with serve(Options()) as
api:`
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ... import timestamps
from . import kinds
from .access.tokens import Tokens
from .catalog import Catalog
from .dispatch import Dispatch
from .handlers import pod_logs
from .storage import bootstrap
from .storage.housekeeping import Housekeeping
from .storage.registry import Registry
from .storage.store import Store
from .types.user import Secrets
from .wire.http import Server

if TYPE_CHECKING:
    from .storage.disk import Disk

log = logging.getLogger(__name__)

COMMIT_AFTER = 0.05  # seconds
# of generated names: no words, nothing that looks like another letter
LETTERS = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(frozen=True, kw_only=True)
class Options:
    profile: str = kinds.NEWEST
    host: str = "127.0.0.1"
    port: int = 0  # 0: the system chooses
    window: int = 10_000  # changes that watches and continued lists may go back
    max_in_flight: int = 400
    bookmark_interval: float = 60.0  # seconds
    housekeeping: bool = (
        True  # the little that happens by itself: accounts, the ends of namespaces, garbage
    )
    db: Path | None = None  # an SQLite file that the objects outlive us in
    end_namespaces: bool = False  # nobody else ends namespaces


class Api:
    """A server that runs. `registry` is for looking inside; clients use the address."""

    def __init__(
        self, registry: Registry, catalog: Catalog, dispatch: Dispatch, tokens: Tokens, address: str
    ) -> None:
        self.registry, self.catalog, self._dispatch = registry, catalog, dispatch
        self.address = address  # http://127.0.0.1:PORT
        self.token = tokens.admin
        self._tokens = tokens

    @property
    def url(self) -> str:
        """As the administrator."""
        return self.url_as(self.token)

    def url_as(self, token: str) -> str:
        """Clients without TLS send no token, so that it is in the address."""
        return f"{self.address}/as/{token}"

    def token_of(self, name: str, groups: Sequence[str] = ()) -> str:
        """For a part of the control plane, as system:kube-scheduler or system:node:n in
        system:nodes.
        """
        return self._tokens.of_user(name, groups)

    def serve_logs(self, logs: pod_logs.Logs) -> None:
        """From now on `kubectl logs` shows what this says of a namespace, a pod and a container."""
        self._dispatch.logs = logs

    def kubeconfig(self, path: Path, token: str = "", namespace: str = "default") -> Path:
        """Written for its owner alone. JSON, which is YAML."""
        cluster = {"server": self.url_as(token or self.token)}
        context = {"cluster": "sim", "user": "sim", "namespace": namespace}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sim", "cluster": cluster}],
            "users": [{"name": "sim", "user": {}}],
            "contexts": [{"name": "sim", "context": context}],
            "current-context": "sim",
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(document, indent=2) + "\n")
        return path


@contextlib.asynccontextmanager
async def serve(options: Options) -> AsyncIterator[Api]:
    """Runs within the loop that it is called in; nobody is kept waiting by one request for longer
    than it takes.
    """
    catalog = Catalog(options.profile)
    store = Store(options.window)
    secrets, kept = _kept(options, store)
    registry = Registry(store, _now, lambda: str(uuid.uuid4()), _letters, options.profile)
    tokens = Tokens(secrets, store, time.time)
    housekeeping = Housekeeping(registry, catalog, options.end_namespaces)
    bootstrap.make(registry, catalog)
    housekeeping.make_accounts()
    store.listeners.append(housekeeping.changed)
    dispatch = Dispatch(catalog, registry, tokens, time.time, options.bookmark_interval)
    server = Server(dispatch.respond, dispatch.busy, options.max_in_flight)
    port = await server.start(options.host, options.port)
    dispatch.address = f"{options.host}:{port}"
    running = asyncio.create_task(housekeeping.run() if options.housekeeping else asyncio.sleep(0))
    running.add_done_callback(_ended)
    try:
        yield Api(registry, catalog, dispatch, tokens, f"http://{options.host}:{port}")
    finally:
        running.cancel()
        await server.stop()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        if kept:
            kept.close()


def _kept(options: Options, store: Store) -> tuple[Secrets, Disk | None]:
    """What an earlier server left in its file, if there is to be one."""
    if not options.db:
        return Secrets.new(), None
    from .storage import disk  # its library is loaded for nobody else

    loop = asyncio.get_running_loop()
    kept = disk.Disk(
        options.db, options.profile, lambda commit: loop.call_later(COMMIT_AFTER, commit)
    )
    secrets = kept.load(store) or Secrets.new()
    kept.keep(secrets)
    store.listeners.append(kept.changed)
    return secrets, kept


def _ended(running: asyncio.Task[None]) -> None:
    """It never ends by itself: without it garbage stays, which somebody should hear of."""
    if not running.cancelled() and (error := running.exception()):
        log.error("the upkeep has ended", exc_info=error)


def _now() -> str:
    return timestamps.now()


def _letters() -> str:
    return "".join(random.choices(LETTERS, k=5))  # noqa: S311 - names, no secrets
