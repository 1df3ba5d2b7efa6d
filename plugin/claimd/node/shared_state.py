"""Repairs what other processes on the node may change: CDI files, our folders, the publisher's
role.

The kernel reports that something in the folders has changed, but not what. So each look compares
everything, and repairs what is wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

from claimd.common import errors, names

from .config import Config
from .folder_watch import FolderWatch
from .host_mounts import HostMounts
from .instance import Instance
from .kubelet.health import Streams
from .prepare.restorer import Restorer
from .publish.publisher import Publisher

log = logging.getLogger(__name__)


class SharedState:
    """Keeps the shared state right while `run` runs."""

    def __init__(
        self,
        config: Config,
        instance: Instance,
        restorer: Restorer,
        publisher: Publisher,
        streams: Streams,
    ) -> None:
        self._config = config
        self._instance = instance
        self._restorer = restorer
        self._publisher = publisher
        self._streams = streams
        self._watch = FolderWatch(self._folders(), self._repair)

        # Set if the CDI files must be written again: the inventory has changed, or the last try
        # failed.
        self._restore_due = False

        # Why the last look failed, or an empty string.
        self._failure = ""

        # True if this instance published at the last look.
        self._publishes = False

        # Set when a folder that was mounted from the host is lost: the process must end.
        self.is_cut_off = asyncio.Event()
        self._mounts = HostMounts(_host_folders(config))

    async def run(self) -> None:
        """Looks after each change in the shared folders. Runs until cancelled."""
        await self._watch.run()

    def lost_mount(self) -> str:
        """Returns which folder of the host is lost; empty if none. May be called in any thread."""
        return self._mounts.lost()

    def request_restore(self) -> None:
        """Makes the next look, which is soon, write the CDI files again."""
        self._restore_due = True
        self._watch.wake()

    async def restore(self) -> None:
        """Writes CDI files and statuses as the checkpoints require.

        A failure is logged, and the next look tries again.
        """
        try:
            await self._restorer.follow_up()
        except (OSError, errors.ClaimError) as error:
            log.error("cannot make the CDI files what the checkpoints say, trying again: %s", error)
            self._restore_due = True

    def _folders(self) -> Iterable[Path]:
        """Yields the folders that this process shares with others."""
        config = self._config
        yield config.cdi_dir
        yield names.plugin_folder(config.kubelet_dir, config.driver_name)
        yield names.metadata_folder(config.kubelet_dir, config.driver_name)
        yield self._instance.instances
        yield self._restorer.checkpoints.path
        if config.library_hook_dir:
            yield Path(config.library_hook_dir)

    async def _repair(self) -> bool:
        """Repairs everything that is wrong. Returns True if nothing is left to do.

        The CDI file must be there before a container restarts, because a restart calls no one. When
        the instance that publishes dies, this one may take over.
        """
        lost = self._mounts.lost()
        if lost:
            log.error("%s; claimd ends after its last answer, to get the new folder", lost)
            self.is_cut_off.set()
            return True

        try:
            if self._restore_due:
                self._restore_due = False
                await self.restore()
            await self._restorer.repair()
            self._instance.refresh()

            may_publish = self._instance.may_publish()
            if may_publish != self._publishes:
                self._publishes = may_publish
                self._publisher.resync()
                self._streams.resend()

            # A dead instance may have left files unfinished. Neither a commit nor a change of a
            # claim's file tells of these.
            if may_publish and self._instance.tidy_up():
                self._restore_due = True
        except (OSError, errors.ClaimError) as error:
            # The looks follow each other closely while they fail.
            if self._failure != str(error):
                self._failure = str(error)
                log.warning(
                    "cannot put right what others have changed, trying again (logged once): %s",
                    error,
                )
            return False

        self._failure = ""
        return not self._restore_due and not self._restorer.is_due


def _host_folders(config: Config) -> Iterable[Path]:
    """Yields the folders that may be mounted from the host one by one."""
    yield config.cdi_dir
    yield names.plugin_folder(config.kubelet_dir, config.driver_name)
    yield names.registry_folder(config.kubelet_dir)
    yield names.pod_resources_socket(config.kubelet_dir).parent
    if config.library_hook_dir:
        yield Path(config.library_hook_dir)
