"""The kubelet's periods and deadlines.

The defaults are those of a real kubelet, except for two. A real kubelet retries a prepare only
after 60 to 90 seconds, and an unprepare after 10 to 15. `claimd demo` sets its own values in
`sim.cluster`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Periods and deadlines in seconds."""

    # Between two scans of the folder where plugins register. A new socket is called at once.
    registry_poll: float = 1.0
    get_info: float = 1.0  # for a plugin's GetInfo
    notify: float = 5.0  # for NotifyRegistrationStatus
    # Until a failed registration is retried; doubles each time.
    registration_backoff: float = 0.5
    registration_backoff_limit: float = 122.0
    wiping_delay: float = 30.0  # without a plugin until its slices are deleted

    call: float = 45.0  # for NodePrepareResources and NodeUnprepareResources
    prepare_retry: float = 5.0
    unprepare_retry: float = 5.0
    reconcile: float = 60.0  # between two searches for claims of deleted pods
    health_retry: float = 5.0  # until a closed health stream is reopened

    lease_renewal: float = 10.0
    # Until a container that ended restarts; doubles each time.
    restart_backoff: float = 10.0
    restart_backoff_limit: float = 300.0
