"""The kubelet's periods and deadlines.

The defaults are a real one's, but for the second try of a prepare, which a real one makes only
after 60 to 90 seconds, and of an unprepare, after 10 to 15. `claimd demo` has its own, in
`sim.cluster`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds."""

    # Between two looks into the folder where plugins register. The look that finds a new socket
    # calls it at once.
    registry_poll: float = 1.0
    get_info: float = 1.0  # for a plugin to say who it is
    notify: float = 5.0  # for it to hear what became of it
    # Until a registration that failed is tried again, doubled each time.
    registration_backoff: float = 0.5
    registration_backoff_limit: float = 122.0
    wiping_delay: float = 30.0  # without a plugin until its slices are deleted

    call: float = 45.0  # for a prepare or an unprepare
    prepare_retry: float = 5.0
    unprepare_retry: float = 5.0
    reconcile: float = 60.0  # between two looks for claims that pods have left behind
    health_retry: float = 5.0  # until a health stream that ended is opened again

    lease_renewal: float = 10.0
    # Until a container that ended starts again, doubled each time.
    restart_backoff: float = 10.0
    restart_backoff_limit: float = 300.0
