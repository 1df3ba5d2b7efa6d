"""The desired slices: built from the latest inventory, for this API server.

The API server may drop fields that it does not know. A slice depends on such fields only while the
API server is known to keep them (`server_features`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from claimd.kubernetes.api.resource import ResourceSlice
from claimd.kubernetes.kube.resources import Resources
from claimd_devices.gpu import Inventory

from . import server_features, slices

log = logging.getLogger(__name__)


class DesiredSlices:
    """The slices as they were built, without an owner, and before anything is taken out.

    `slices` is None until the first `build`.
    """

    def __init__(
        self,
        resources: Resources,
        driver: str,
        node: str,
        options: slices.Options,
    ) -> None:
        self.inventory = Inventory()
        self.taints: slices.Taints = {}
        self.slices: list[ResourceSlice] | None = None
        self._builder = slices.Builder(driver, node)
        self._options = options
        self._counters = server_features.CounterSupport(resources, driver, node)
        self._sharing = server_features.SharingSupport(resources, driver, node, options.sharing)
        self._binding = server_features.BindingSupport(resources, driver, node, options.before_bind)
        self._problems: list[str] = []  # of the last build; each is logged once

    @property
    def features(self) -> tuple[server_features.Support, ...]:
        """Returns the fields whose support is checked before slices are written."""
        return self._counters, self._sharing, self._binding

    @property
    def device_names(self) -> set[str]:
        """The names of all devices in the slices."""
        names: set[str] = set()
        for slice_ in self.slices or ():
            names.update(device.name for device in slice_.spec.devices)
        return names

    def build(self) -> bool:
        """Builds the slices from the inventory and the taints. Returns True if they changed."""
        wanted, default = self._options, slices.DEFAULT_OPTIONS
        options = slices.Options(
            partitions=self._counters.kept,
            numa_list=wanted.numa_list,
            sharing=wanted.sharing if self._sharing.kept else default.sharing,
            before_bind=wanted.before_bind if self._binding.kept else default.before_bind,
        )
        desired, problems = self._builder.build(self.inventory, options, self.taints)

        for problem in problems:
            if problem not in self._problems:
                log.warning("not published as found: %s", problem)
        self._problems = problems

        if desired == self.slices:
            return False
        self.slices = desired
        return True

    def withdraw_features(self, dropped: Collection[str]) -> bool:
        """Gives up the features whose fields the API server has dropped.

        `dropped` has paths as `pool.differences` gives them. Returns True if `build` must be called
        again.
        """
        withdrawn = False

        # Without counters the scheduler cannot keep a GPU and its parts apart: only whole GPUs may
        # be published.
        if "spec.sharedCounters" in dropped:
            withdrawn |= self._counters.withdraw()

        # A device that only one claim can have must not be described as a shared one.
        if "spec.devices[*].allowMultipleAllocations" in dropped:
            withdrawn |= self._sharing.withdraw()

        # Without both lists the scheduler does not wait.
        if {
            "spec.devices[*].bindingConditions",
            "spec.devices[*].bindingFailureConditions",
        } & set(dropped):
            withdrawn |= self._binding.withdraw()
        return withdrawn
