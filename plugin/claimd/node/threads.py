"""The threads of the process: enough of them at the start, and the end of the process if one dies.

gRPC aborts, or waits for ever, if it cannot start a thread. If a thread dies, its work is never
done, and calls wait for it until their deadlines. So a process that lacks a thread ends with a
message, and the kubelet starts the container again.
"""

from __future__ import annotations

import _thread
import contextlib
import faulthandler
import logging
import os
import sys
import threading
from typing import NoReturn

from claimd.common import errors

log = logging.getLogger(__name__)

# gRPC starts up to 16 threads, by the number of processors. The others are for the disk, the
# hardware and the endpoints. A node at rest has about ten.
NEEDED = 32

# The exit code of a process that lacks a thread.
FAILED = 1

# How Python names the thread by which gRPC wakes the event loop.
_POLLER = "(_poll_wrapper)"


def check_enough() -> None:
    """Starts NEEDED threads at the same time and ends them again.

    Raises Fatal if the process may not have so many.
    """
    # Threads of the module threading take more than twice as long to start.
    gate = _thread.allocate_lock()
    ended = threading.Semaphore(0)

    def wait_at_gate() -> None:
        with gate:
            pass
        ended.release()

    started = 0
    gate.acquire()
    try:
        for _ in range(NEEDED):
            _thread.start_new_thread(wait_at_gate, ())
            started += 1
    except (RuntimeError, MemoryError) as error:
        raise errors.Fatal(
            f"this process could start only {started} of {NEEDED} threads: {error}; "
            "see the limits of processes (pids) and of memory, those of this pod and of the node"
        ) from error
    finally:
        gate.release()
        for _ in range(started):
            ended.acquire()


def end_if_one_dies() -> None:
    """Installs hooks that end the process, with a message and FAILED, when an error ends a thread.

    gRPC may also crash, for example if it cannot start a thread at that moment. Then the log shows
    where. Prepared claims stay prepared in any case.
    """
    faulthandler.enable(2)  # stderr
    threading.excepthook = _on_death
    sys.unraisablehook = _on_unraisable


def _on_death(death: threading.ExceptHookArgs) -> None:
    name = death.thread.name if death.thread is not None else "without a name"
    _end(f"the thread {name} has died", death.exc_value)


def _on_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Takes an error that could not be raised, such as one of a finalizer, or of gRPC's C code.

    Without memory, anything may have been left undone. An error in gRPC's thread has ended it.
    """
    name = threading.current_thread().name
    if isinstance(unraisable.exc_value, MemoryError) or name.endswith(_POLLER):
        _end(f"the thread {name} has lost an error", unraisable.exc_value)
    sys.__unraisablehook__(unraisable)


def _end(sentence: str, error: BaseException | None) -> NoReturn:
    # The log may need memory that is not there. The process ends in any case.
    with contextlib.suppress(BaseException):
        log.critical(
            "%s, and claimd cannot go on without it: %s", sentence, repr(error), exc_info=error
        )
    os._exit(FAILED)
