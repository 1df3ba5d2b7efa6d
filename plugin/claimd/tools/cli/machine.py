"""The machine whose GPUs a command reads: this one, a fake tree, or a capture of another."""

from __future__ import annotations

import contextlib
import dataclasses
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from claimd.common import errors
from claimd.node.config import Config
from claimd_devices import values

if TYPE_CHECKING:
    from claimd_devices.capture import Replay
    from claimd_devices.gpu import Inventory


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine whose files can be read.

    `settings` are those of the command. If the machine is a capture, the root in them is the
    folder that `replay` names.
    """

    settings: Config
    replay: Replay | None = None

    def scan(self) -> Inventory:
        """Reads the GPUs that exist now.

        Raises UsageError if `include` or `exclude` cannot be understood, and Fatal if the root does
        not exist.
        """
        from claimd_devices import scan

        try:
            scan.check_rules(self.settings.rules)
        except ValueError as error:
            raise errors.UsageError(str(error)) from error

        root = self.settings.root
        if root and not Path(root).is_dir():
            raise errors.Fatal(
                f"{root}: there is no such folder or capture; "
                "`claimd fake write` writes one, or `capture`"
            )

        # NVML completes what the kernel's files do not tell.
        inventory = scan.scan(self.settings.roots, self.settings.rules, with_link_now=True)
        if self.settings.nvml:
            from claimd_devices import nvml

            inventory = nvml.Library(self.settings.roots).complete(inventory)

        # People know the paths of the machine that was captured, not those of our folder.
        return self.replay.with_original_paths(inventory) if self.replay else inventory


def _is_capture(root: Path) -> bool:
    """Returns True if the root is a file, and not a folder. Raises Fatal if that is not known."""
    try:
        return stat.S_ISREG(root.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise errors.Fatal(f"the root {root} cannot be read: {error.strerror}") from error


@contextlib.contextmanager
def open_machine(settings: Config) -> Iterator[Machine]:
    """Yields the machine of these settings. A capture is unpacked into a folder until the end."""
    if not settings.root or not _is_capture(Path(settings.root)):
        yield Machine(settings=settings)
        return

    # Only a capture needs these modules, and every start of the plugin calls this function.
    import tempfile

    from claimd_devices import capture

    with tempfile.TemporaryDirectory(prefix="claimd-") as folder:
        try:
            replay = capture.unpack(Path(settings.root), Path(folder))
        except (ValueError, OSError) as error:
            raise errors.UsageError(str(error)) from error
        try:
            here = dataclasses.replace(settings, root=str(replay.root))
            yield Machine(settings=here, replay=replay)
        finally:
            capture.stop_replay()
