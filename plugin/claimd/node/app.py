"""The composition root: builds every object, starts every server and task, wires them together.

`build` does no I/O; `App.run` starts and stops everything in the order that the kubelet's contract
asks for. What the parts do is theirs, and nothing but this module knows all of them.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import gc
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claimd.common import budgets, errors, metrics, names, pacing
from claimd.kubernetes.kube import auth, client, resources
from claimd_devices import monitor, scan, values, watch
from claimd_devices.gpu import Inventory, Roots, Rules
from claimd_devices.health import HealthReport

from . import folder_watch, instance
from .config import Config
from .endpoint import server as endpoint
from .kubelet import dra, podresources, registration, server
from .kubelet import health as kubelet_health
from .prepare import (
    calls,
    cdi,
    checkpoint,
    claim_reports,
    container_files,
    driver,
    garbage,
    hardware,
    library_hook,
    metadata,
    mps,
    node_claims,
    passthrough,
    restorer,
    vm_gpus,
)
from .prepared import PreparedClaim
from .publish import publisher, sharing
from .report import announcements, conflicts, events, health, health_state, policy_check, status

if TYPE_CHECKING:
    from claimd.kubernetes.kube.client_config import ClientConfig

    from .report import scrape_access

log = logging.getLogger(__name__)

# Seconds after which we say that the kubelet should have registered us.
REGISTRATION_PATIENCE = 30.0
# Seconds for an answer that is ready to leave when we are told to stop.
DRAIN = 0.5
# Seconds until a part that failed by a mistake of ours is started again.
RESTART = 5.0

Work = Callable[[], Coroutine[Any, Any, None]]
Start = Callable[[str, Work], None]


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class App:
    """One running plugin. Made by `build`; `run` may be called once."""

    config: Config
    client_config: ClientConfig
    client: client.Client
    resources: resources.Resources
    watch: watch.Watch
    monitor: monitor.Monitor
    streams: kubelet_health.Streams
    checkpoints: checkpoint.CheckpointFolder
    driver: driver.Driver
    reports: claim_reports.ClaimReports
    reporter: status.StatusReporter
    announcements: announcements.Announcements
    events: events.EventRecorder
    garbage: garbage.GarbageCollector
    conflicts: conflicts.ConflictDetector
    publisher: publisher.Publisher
    policy_check: policy_check.PolicyCheck
    instance: instance.Instance
    calls: calls.Calls
    boot_id: str
    scanned: asyncio.Event = field(default_factory=asyncio.Event)
    registered: asyncio.Event = field(default_factory=asyncio.Event)
    # The CDI files have to be made anew: the inventory has changed, or the last try failed.
    restore_due: bool = False
    # The look at what others share with us, once we serve.
    shared: folder_watch.FolderWatch | None = None
    # Whether we were the one that publishes when we last looked.
    publishes: bool = False
    # Who may scrape, where not everybody may.
    scrape_access: scrape_access.ScrapeAccess | None = None
    # When the taints that are published now get another effect.
    eviction_timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Serves until SIGTERM or SIGINT. Raises Fatal if a person has to change something."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await self.run_until(stop)

    async def run_until(self, stop: asyncio.Event) -> None:
        """The same until `stop` is set, for whoever has the signals to itself."""
        fatal: Exception | None = None
        try:
            async with asyncio.TaskGroup() as group:
                await self._start_and_serve(group, stop)
                log.info("stopped; what is prepared stays prepared, and our slices stay published")
        except* errors.Fatal as several:
            fatal = several.exceptions[0]

        # Python before 3.11.4 wraps what is raised within `except*` into a group once more.
        if fatal is not None:
            raise fatal from None

    # ------------------------------------------------------------------ start and end

    async def _start_and_serve(self, group: asyncio.TaskGroup, stop: asyncio.Event) -> None:
        tasks: list[asyncio.Task[None]] = []

        def start(name: str, work: Work) -> None:
            tasks.append(group.create_task(_keep_running(name, work), name=name))

        # Alive first: another instance must not take us for dead while we look around.
        self.instance.enter()
        self.monitor.restore(health_state.load(self._folder, self.boot_id))

        # The API server is asked while we scan.
        start("the watch of the slices", self.resources.slices.run)
        start("the watch of the hardware", lambda: self.watch.run(self._on_inventory))
        await pacing.wait_for_any(self.scanned, stop)

        if not stop.is_set():
            await self._restore()
            await self._serve(start, stop)

        # What is prepared and published stays: a successor goes on with it.
        for task in tasks:
            task.cancel()
        if self.scrape_access is not None:
            await self.scrape_access.close()
        await self.client.close()
        self.instance.leave()

    async def _serve(self, start: Start, stop: asyncio.Event) -> None:
        dra_path, registration_path = _socket_paths(self.config)
        self._sweep_sockets()
        services = (*dra.SERVICES, *kubelet_health.SERVICES)
        registrar = registration.Registration(
            self.config.driver_name, dra_path, services, self._on_registered
        )

        # The kubelet may call as soon as it sees the registration socket: it comes last and, at
        # the end, goes first.
        async with (
            server.Socket(
                dra_path, self._add_services, self.config.stop_grace + DRAIN
            ) as dra_socket,
            server.Socket(
                registration_path,
                lambda grpc_server: registration.add_to(grpc_server, registrar),
                DRAIN,
            ) as registration_socket,
        ):
            start("the publisher", self.publisher.run)
            start("the look at the GPUs' health", lambda: self.monitor.run(self._on_health))
            start("the reporter", self.reporter.run)
            start("the events", self.events.run)
            if self.config.garbage_grace:
                start("the collection of garbage", self.garbage.run)
            start("the look for conflicts", self.conflicts.run)
            self.shared = folder_watch.FolderWatch(
                self._shared_folders(), self._put_shared_state_right
            )
            start("the look at what others share", self.shared.run)
            sockets = folder_watch.FolderWatch(
                (dra_path.parent, registration_path.parent),
                functools.partial(_mend, dra_socket, registration_socket),
            )
            start("the look at the sockets", sockets.run)
            start("the check of the admission policies", self.policy_check.run)
            start("the wait for the kubelet", lambda: self._await_registration(registrar))
            probes, metrics_ = self.config.endpoint, self.config.metrics_endpoint
            protection = self._protection()
            for name, endpoint_ in endpoint.serving(probes, metrics_, self._unready, protection):
                start(name, endpoint_.run)
            if metrics_ or probes.startswith("unix:"):
                self._show_devices()

            start("the release of what the start needed", self._release_startup_memory)
            await stop.wait()
            log.info("told to stop")
            self.streams.close()

            # From now on calls are refused at once, so that the kubelet asks another instance. Those
            # under way are answered: a kubelet that is cut off tries again only after a minute.
            finishing = asyncio.create_task(self.calls.finish(self.config.stop_grace))
        await finishing
        await asyncio.gather(self.reporter.finish(DRAIN), self.events.finish(DRAIN))

    async def _restore(self) -> None:
        """Makes CDI files and statuses what the checkpoints say; tried again if it fails."""
        try:
            await self.driver.claims.restorer.follow_up()
        except (OSError, errors.ClaimError) as error:
            log.error("cannot make the CDI files what the checkpoints say, trying again: %s", error)
            self.restore_due = True

    def _sweep_sockets(self) -> None:
        """Removes the sockets of dead predecessors, in both of the folders that we serve in."""
        config = self.config
        server.sweep(self._folder, names.is_dra_socket)
        server.sweep(
            config.kubelet_dir / "plugins_registry",
            lambda name: names.is_registration_socket(name, config.driver_name),
        )

    def _shared_folders(self) -> Iterable[Path]:
        """Where others could change what we rely on, or we what they do."""
        config = self.config
        yield config.cdi_dir
        yield self._folder
        yield names.metadata_folder(config.kubelet_dir, config.driver_name)
        yield self.instance.instances
        yield self.checkpoints.path
        if config.library_hook_dir:
            yield Path(config.library_hook_dir)

    def _add_services(self, grpc_server: server.GrpcServer) -> None:
        dra.add_to(grpc_server, self.calls)
        kubelet_health.add_to(grpc_server, self.streams)

    @property
    def _folder(self) -> Path:
        return names.plugin_folder(self.config.kubelet_dir, self.config.driver_name)

    def _protection(self) -> endpoint.Protection | None:
        """What keeps metrics from others, as the settings say."""
        if not self.config.metrics_tls:
            return None

        from .endpoint import (
            certificate as serving_certificate,  # nothing of this is loaded where it is not asked for
        )

        certificate = serving_certificate.ServingCertificate(Path(self.config.metrics_tls))
        if not self.config.metrics_authorization:
            return endpoint.Protection(certificate.context)

        from .report import scrape_access

        reviews = client.Client(
            self.client_config,
            agent="claimd",
            limit=scrape_access.CONNECTIONS,
            largest=scrape_access.LARGEST,
        )
        self.scrape_access = scrape_access.ScrapeAccess(reviews)
        return endpoint.Protection(certificate.context, self.scrape_access.may_scrape)

    def _show_devices(self) -> None:
        """Scrapes are told which device is whose, and how it is."""
        from .report import device_metrics  # nothing of it is loaded where nobody scrapes

        loop = asyncio.get_running_loop()
        socket = names.pod_resources_socket(self.config.kubelet_dir)

        def users() -> device_metrics.Users:
            asked = asyncio.run_coroutine_threadsafe(podresources.users(socket), loop)
            try:
                return asked.result(podresources.TIMEOUT)
            except (OSError, TimeoutError, CancelledError):  # away, or we stop
                asked.cancel()
                return {}

        device_metrics.DeviceMetrics(
            node=self.config.node_name,
            roots=self.config.roots,
            inventory=lambda: self.watch.last or Inventory(),
            report=lambda: self.monitor.last,
            claims=lambda: self.driver.claims.checkpoints.claims,
            users=users,
        ).install()
        device_metrics.install_process(lambda: self.resources.version)

    # ------------------------------------------------------------------ what happens

    def _on_registered(self) -> None:
        self.instance.registered()
        self.registered.set()
        self.publisher.resync()

    def _on_inventory(self, inventory: Inventory) -> None:
        log.info(
            "%d GPUs; %d other display devices are left alone",
            len(inventory.gpus),
            len(inventory.skipped),
        )
        metrics.GPUS.replace(collections.Counter(gpu.vendor for gpu in inventory.gpus))

        # If it changes what is known of their health, _on_health publishes both together.
        if not self.monitor.on_inventory(inventory):
            self._publish()

        # The device numbers in the CDI files may be others now. The first inventory is restored
        # from by the start itself.
        self.restore_due = self.scanned.is_set()
        if self.shared is not None:
            self.shared.wake()
        self.scanned.set()

    def _on_health(self, report: HealthReport) -> None:
        health_state.save(self._folder, self.boot_id, self.monitor.state)
        metrics.SICK.replace(
            collections.Counter(
                finding.kind for _, findings in report.findings for finding in findings
            )
        )
        self._publish()
        self.announcements.set_health(report)

    def _publish(self) -> None:
        """Slices, taints and the kubelet's stream, all from the same moment."""
        inventory = self.watch.last or Inventory()
        report = self.monitor.last
        now = time.time()
        taints = health.taints(
            report, failed=self.config.taint_failed, degraded=self.config.taint_degraded, now=now
        )

        # A finding that has just begun evicts nobody yet: publish again when it does.
        if self.eviction_timer is not None:
            self.eviction_timer.cancel()
            self.eviction_timer = None
        seconds = health.next_eviction(report, now)
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self.eviction_timer = loop.call_later(seconds, self._publish)

        # A taint needs a device: a GPU that vanished stays published for as long as the report
        # retains it.
        self.publisher.set(Inventory.of((*inventory.gpus, *report.retained)), taints)
        self.streams.set(health.of_devices(inventory.gpus, report))

    # ------------------------------------------------------------------ what is looked after

    async def _put_shared_state_right(self) -> bool:
        """Whether nothing is left to do of what others may have changed without telling us.

        A container that restarts asks nothing, so its CDI file must be there already. And an
        instance that died leaves the publishing to us.
        """
        try:
            if self.restore_due:
                self.restore_due = False
                await self._restore()
            await self.driver.claims.restorer.repair()
            self.instance.refresh()

            may_publish = self.instance.may_publish()
            if may_publish != self.publishes:
                self.publishes = may_publish
                self.publisher.resync()
                self.streams.resend()
        except (OSError, errors.ClaimError) as error:
            log.warning("cannot put right what others have changed, trying again: %s", error)
            return False
        return not self.restore_due and not self.driver.claims.restorer.is_due

    async def _await_registration(self, registrar: registration.Registration) -> None:
        while not self.registered.is_set():
            if not await pacing.wait(self.registered, REGISTRATION_PATIENCE):
                log.warning(
                    "not registered after %.0f s: %s; is %s the registry folder of a running "
                    "kubelet, under the same path as on the host?",
                    REGISTRATION_PATIENCE,
                    registrar.last_seen,
                    self.config.kubelet_dir / "plugins_registry",
                )

    async def _release_startup_memory(self) -> None:
        """Once we serve, gives back what only the start needed, and keeps the rest out of later
        collections.

        What was built now lives as long as the process: looking through it again and again would cost
        time in the middle of a prepare. To look through it once takes ten milliseconds, which no
        start has to wait for.
        """
        await pacing.wait(self.publisher.published, REGISTRATION_PATIENCE)
        gc.collect()
        gc.freeze()
        with contextlib.suppress(OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).malloc_trim(0)

    def _unready(self) -> str:
        """Why /readyz says no; empty if we are ready."""
        if not self.registered.is_set():
            return "the kubelet has not registered us yet"
        if not self.publisher.published.is_set():
            return "our ResourceSlices are not published yet"
        return ""


# ---------------------------------------------------------------------- building


def build(config: Config) -> App:
    """Every object, wired. No I/O but reading the credentials; nothing is started.

    Raises UsageError for settings that cannot work.
    """
    _check(config)
    folder = names.plugin_folder(config.kubelet_dir, config.driver_name)
    boot_id = health_state.boot_id(config.roots)
    instance_ = instance.Instance(folder, config.pod_uid or os.urandom(16).hex())

    # The edges: the API server and the hardware.
    client_config = auth.client_config(config.kubeconfig, config.service_account)
    client_ = client.Client(client_config, agent="claimd", largest=budgets.ANSWER.limit)
    resources_ = resources.Resources(client_, config.driver_name, config.node_name)
    watch_, monitor_ = _hardware(config)

    # What people are told, and what is prepared.
    events_ = events.EventRecorder(resources_, config.driver_name, config.node_name)
    record_node_event = functools.partial(events_.record, events.node(config.node_name))
    reporter = status.StatusReporter(resources_, config.driver_name)
    checkpoints = checkpoint.CheckpointFolder(
        folder, boot_id, functools.partial(record_node_event, "RecordDamaged")
    )
    reports = claim_reports.ClaimReports(
        driver=config.driver_name,
        checkpoints=checkpoints,
        reporter=reporter,
        inventory=lambda: watch_.last or Inventory(),
    )
    sharing_rules = sharing.parse(config.share)
    hardware_ = hardware.Hardware(watch=watch_)
    files = container_files.ContainerFiles(
        specs=cdi.SpecFolder(config.cdi_dir, config.driver_name),
        metadata=metadata.MetadataFolder(
            names.metadata_folder(config.kubelet_dir, config.driver_name),
            config.driver_name,
            metadata.Published(numa_list=config.numa_list, sharing_rules=sharing_rules),
        ),
        hardware=hardware_,
        library_hook=library_hook.LibraryHook(
            library_hook.path_in_image(), config.library_hook_dir
        ),
    )
    vm_gpus_ = vm_gpus.VmGpus(
        node=config.node_name,
        checkpoints=checkpoints,
        hardware=hardware_,
        binder=passthrough.Binder(roots=config.roots, boot_id=boot_id),
        record_event=events_.record,
    )
    claims = node_claims.NodeClaims(
        name=config.driver_name,
        node=config.node_name,
        checkpoints=checkpoints,
        files=files,
        hardware=hardware_,
        vm_gpus=vm_gpus_,
        restorer=restorer.Restorer(
            node=config.node_name,
            checkpoints=checkpoints,
            files=files,
            hardware=hardware_,
            vm_gpus=vm_gpus_,
            reports=reports,
            record_event=events_.record,
            another_publishes=instance_.another_publishes,
        ),
        reports=reports,
        require_libraries=config.refuses_without_libraries,
        mps_daemons=mps.Daemons(host=config.roots.host),
    )
    driver_ = driver.Driver(resources=resources_, claims=claims)
    announcements_ = _announcements(config, reports, events_)
    publisher_ = publisher.Publisher(
        resources_,
        config.driver_name,
        config.node_name,
        instance_.may_publish,
        numa_list=config.numa_list,
        sharing_rules=sharing_rules,
    )

    return App(
        config=config,
        client_config=client_config,
        client=client_,
        resources=resources_,
        watch=watch_,
        monitor=monitor_,
        streams=kubelet_health.Streams(config.node_name),
        checkpoints=checkpoints,
        driver=driver_,
        reports=reports,
        reporter=reporter,
        announcements=announcements_,
        events=events_,
        garbage=_garbage_collector(config, driver_, instance_, events_),
        conflicts=conflicts.ConflictDetector(
            resources=resources_,
            driver=config.driver_name,
            node=config.node_name,
            inventory=lambda: watch_.last,
            may_check=instance_.may_publish,
            set_conditions=functools.partial(announcements_.set_conditions, conflicts.CONDITION),
            record_event=record_node_event,
        ),
        publisher=publisher_,
        policy_check=policy_check.PolicyCheck(
            resources=resources_,
            driver=config.driver_name,
            node=config.node_name,
            published=publisher_.published,
            record_event=record_node_event,
        ),
        instance=instance_,
        calls=calls.Calls(driver_, reporter.hurry),
        boot_id=boot_id,
    )


def _announcements(
    config: Config, reports: claim_reports.ClaimReports, events_: events.EventRecorder
) -> announcements.Announcements:
    def prepared_claims() -> Iterable[PreparedClaim]:
        return reports.checkpoints.claims.values()

    return announcements.Announcements(
        node=config.node_name,
        conditions=reports.conditions,
        inventory=reports.inventory,
        claims=prepared_claims,
        report=reports.report,
        record_event=events_.record,
    )


def _garbage_collector(
    config: Config,
    driver_: driver.Driver,
    instance_: instance.Instance,
    events_: events.EventRecorder,
) -> garbage.GarbageCollector:
    """Collects nothing before the kubelet has registered us, and has had its turn."""
    socket = names.pod_resources_socket(config.kubelet_dir)
    return garbage.GarbageCollector(
        driver=driver_,
        pods=functools.partial(podresources.pods, socket),
        may_collect=instance_.may_publish,
        record_event=events_.record,
        grace=config.garbage_grace,
    )


def _check(config: Config) -> None:
    """Refuses what would not work, before anything is built."""
    if not config.node_name:
        raise errors.UsageError(
            "node-name is not set; give --node-name, or CLAIMD_NODE_NAME from spec.nodeName"
        )
    try:
        scan.check_rules(config.rules)
        sharing.parse(config.share)
    except ValueError as error:
        raise errors.UsageError(str(error)) from error
    _socket_paths(config)


def _hardware(config: Config) -> tuple[watch.Watch, monitor.Monitor]:
    """The watch hands uevents to the monitor, and the monitor asks the watch to scan again."""
    monitor_ = monitor.Monitor(
        config.roots, grace=config.absent_grace, interval=config.health_interval
    )
    watch_ = watch.Watch(
        config.roots, config.rules, config.rescan, _scan(config), on_uevent=monitor_.on_uevent
    )
    monitor_.request_rescan = watch_.wake
    return watch_, monitor_


def _scan(config: Config) -> watch.Scan:
    if not config.nvml:
        return _counted_scan

    # Few nodes have MIG, and fewer a library that may be asked: the others do not load it.
    from claimd_devices import nvml

    library = nvml.Library(config.roots)
    return lambda roots, rules: library.complete(_counted_scan(roots, rules))


def _counted_scan(roots: Roots, rules: Rules) -> Inventory:
    metrics.SCANS.add()
    began = time.monotonic()
    inventory = scan.scan(roots, rules)
    metrics.SCAN_SECONDS.add(time.monotonic() - began)
    return inventory


def _socket_paths(config: Config) -> tuple[Path, Path]:
    """The DRA socket and the registration socket. UsageError if a path is too long for a socket."""
    place = config.kubelet_dir, config.driver_name, config.pod_uid
    return names.dra_socket(*place), names.registration_socket(*place)


# ---------------------------------------------------------------------- running


async def _keep_running(name: str, work: Work) -> None:
    """Runs one part of the plugin, and starts it again after a mistake of ours.

    Neither the other parts nor the process that pods depend on must end because of it. A Fatal
    error ends everything, since only a person can help.
    """
    while True:
        try:
            return await work()
        except errors.Fatal:
            raise
        except Exception:
            log.exception("%s failed, which is a mistake in claimd; it is started again", name)
            await asyncio.sleep(RESTART)


async def _mend(*sockets: server.Socket) -> bool:
    """Whether all of them are there; others find us by them."""
    mended = [await socket.mend() for socket in sockets]
    return all(mended)
