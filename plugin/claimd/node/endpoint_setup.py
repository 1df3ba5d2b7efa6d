"""Builds the endpoints for probes and metrics from the settings.

Modules that only a scrape needs are imported here when the settings ask for them, so that other
nodes do not pay for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING

from claimd.common import names
from claimd.kubernetes.kube import client, resources
from claimd_devices import monitor, values, watch
from claimd_devices.gpu import Inventory

from .config import Config
from .endpoint import server as endpoint
from .kubelet import podresources
from .prepare import checkpoint

if TYPE_CHECKING:
    from claimd.kubernetes.kube.client_config import ClientConfig

    from .report import device_metrics, scrape_access


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class EndpointSetup:
    """Everything that is needed to build the endpoints and the metrics of devices."""

    config: Config
    client_config: ClientConfig
    resources: resources.Resources
    watch: watch.Watch
    monitor: monitor.Monitor
    checkpoints: checkpoint.CheckpointFolder

    # Decides who may scrape, if the settings restrict that.
    _scrape_access: scrape_access.ScrapeAccess | None = None

    def build(
        self, unready: Callable[[], str], dead: Callable[[], str]
    ) -> list[tuple[str, endpoint.Endpoint]]:
        """Returns the endpoints to run, each with a name for the log. May be called once.

        `unready` returns the reason why we are not ready, or "" if we are, and `dead` the reason
        why a restart is needed.
        """
        probes, metrics = self.config.endpoint, self.config.metrics_endpoint
        if metrics or probes.startswith("unix:"):
            self._install_device_metrics()
        return endpoint.serving(probes, metrics, unready, self._protection(), dead)

    async def close(self) -> None:
        """Ends the questions to the API server about who may scrape."""
        if self._scrape_access is not None:
            await self._scrape_access.close()

    def _protection(self) -> endpoint.Protection | None:
        """Returns the protection of metrics that the settings ask for."""
        if not self.config.metrics_tls:
            return None

        from .endpoint import certificate as serving_certificate

        certificate = serving_certificate.ServingCertificate(Path(self.config.metrics_tls))
        if not self.config.metrics_authorization:
            return endpoint.Protection(certificate.context)

        from .report import scrape_access

        # This is a separate client: a flood of scrapes must not take the connections that the
        # kubelet's calls need.
        reviews = client.Client(
            self.client_config,
            agent="claimd",
            limit=scrape_access.CONNECTIONS,
            largest=scrape_access.LARGEST,
        )
        self._scrape_access = scrape_access.ScrapeAccess(reviews)
        return endpoint.Protection(certificate.context, self._scrape_access.may_scrape)

    def _readings(self) -> Callable[[Inventory], Mapping[str, device_metrics.Readings]]:
        """Returns what reads the sensors of all GPUs; those of NVIDIA's with the setting nvml."""
        from claimd_devices import telemetry

        roots = self.config.roots
        if not self.config.nvml:
            return lambda inventory: telemetry.readings(roots, inventory.gpus)

        from claimd_devices import nvml

        sensors = nvml.Sensors(roots)
        return lambda inventory: {
            **telemetry.readings(roots, inventory.gpus),
            **telemetry.nvidia_readings(inventory.gpus, sensors.measure(inventory)),
        }

    def _install_device_metrics(self) -> None:
        """Adds the metrics that are collected only during a scrape: users and health of devices."""
        from .report import device_metrics

        loop = asyncio.get_running_loop()
        socket = names.pod_resources_socket(self.config.kubelet_dir)

        def users() -> device_metrics.Users:
            # A scrape runs in a thread of the endpoint, and gRPC lives in the event loop.
            future = asyncio.run_coroutine_threadsafe(podresources.users(socket), loop)
            try:
                return future.result(podresources.TIMEOUT)
            except (OSError, CancelledError):  # the kubelet is away, or we stop
                future.cancel()
                return {}

        device_metrics.DeviceMetrics(
            node=self.config.node_name,
            inventory=lambda: self.watch.last or Inventory(),
            monitor=self.monitor,
            claims=lambda: self.checkpoints.claims,
            users=users,
            readings=self._readings(),
        ).install()
        device_metrics.install_process(lambda: self.resources.version)
