"""The composition root: builds every object, starts every server and task, wires them together.

`build` does no I/O. `App.run` starts and stops everything in the order that the kubelet requires.
Only this module knows all the parts.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from claimd.common import budgets, errors, metrics, names, pacing
from claimd.kubernetes.kube import auth, client, resources
from claimd_devices import monitor, scan, symptoms, sysfs, values, watch
from claimd_devices.failures import LookFailedError
from claimd_devices.gpu import Inventory, Roots, Rules

from . import endpoint_setup, hardware_listener, instance, shared_state
from .config import Config
from .kubelet import health as kubelet_health
from .kubelet import podresources, sockets
from .prepare import (
    calls,
    cdi,
    checkpoint,
    claim_reports,
    container_files,
    driver,
    early_claims,
    garbage,
    gone_claims,
    hardware,
    library_hook,
    lost_checkpoints,
    metadata,
    mps,
    node_claims,
    passthrough,
    restorer,
    vm_gpus,
)
from .prepared import PreparedClaim
from .publish import publisher, sharing, slices
from .report import announcements, conflicts, events, health_state, policy_check, status

log = logging.getLogger(__name__)

# Seconds until a part that failed because of a bug of ours is started again.
RESTART = 5.0

# Seconds in which the first scan of the hardware must succeed. If it does not, the program ends
# with a message, and the kubelet starts another container.
FIRST_SCAN = 30.0

Work = Callable[[], Coroutine[Any, Any, None]]
Start = Callable[[str, Work], None]


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class App:
    """One running plugin. It is built by `build`; `run` may be called once."""

    config: Config
    client: client.Client
    resources: resources.Resources
    hardware: hardware_listener.HardwareListener
    driver: driver.Driver
    reports: claim_reports.ClaimReports
    reporter: status.StatusReporter
    events: events.EventRecorder
    publisher: publisher.Publisher
    instance: instance.Instance
    shared_state: shared_state.SharedState
    kubelet: sockets.KubeletSockets
    endpoints: endpoint_setup.EndpointSetup

    # Parts that need no other call than `run`, each with a name for the log.
    background: tuple[tuple[str, Work], ...]

    async def run(self) -> None:
        """Serves until SIGTERM or SIGINT. Raises Fatal if a person has to change something."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await self.run_until(stop)

    async def run_until(self, stop: asyncio.Event) -> None:
        """Serves until `stop` is set, for callers that handle signals themselves.

        Raises Fatal if a person has to change something.
        """
        fatal: Exception | None = None
        try:
            async with asyncio.TaskGroup() as group:
                await self._start_and_serve(group, stop)
                log.info("stopped; what is prepared stays prepared, and our slices stay published")
        except* errors.Fatal as several:
            fatal = several.exceptions[0]
        except* OSError as several:
            # The parts handle the errors that they can go on after. A new process may do better.
            fatal = errors.Fatal(f"claimd cannot go on after an error: {several.exceptions[0]}")

        # Python before 3.11.4 wraps what is raised within `except*` into a group once more.
        if fatal is not None:
            raise fatal from None

    # ------------------------------------------------------------------ start and end

    async def _start_and_serve(self, group: asyncio.TaskGroup, stop: asyncio.Event) -> None:
        tasks: list[asyncio.Task[None]] = []

        def start(name: str, work: Work) -> None:
            tasks.append(group.create_task(_keep_running(name, work), name=name))

        # This comes first, so that another instance does not think during the scan that we are
        # dead.
        self.instance.enter()
        self.hardware.restore()

        # The informer asks the API server while the hardware is scanned.
        start("the watch of the slices", self.resources.slices.run)
        start("the watch of the hardware", self.hardware.watch_inventory)
        await self._wait_for_first_scan(stop)

        # The CDI files must be right before the kubelet can call.
        if not stop.is_set():
            await self.shared_state.restore()
            await self._serve(start, stop)

        # Prepared claims and published slices stay, for the successor of this process.
        for task in tasks:
            task.cancel()
        await self.endpoints.close()
        await self.client.close()
        self.instance.leave()
        if self.shared_state.is_cut_off.is_set():
            lost = self.shared_state.lost_mount()
            raise errors.Fatal(f"{lost}; the next container gets the new folder")

    async def _wait_for_first_scan(self, stop: asyncio.Event) -> None:
        """Returns after the first scan, or when `stop` is set. Raises Fatal if all scans fail."""
        while not (self.hardware.scanned.is_set() or stop.is_set()):
            try:
                async with asyncio.timeout(FIRST_SCAN):
                    await pacing.wait_for_any(self.hardware.scanned, stop)
            except TimeoutError:
                # There is no timeout for a scan that hangs: it logs the device, and a restart would
                # change nothing.
                if failure := self.hardware.watch.failure:
                    raise errors.Fatal(
                        f"the hardware could not be looked at for {FIRST_SCAN:.0f} s: {failure}; "
                        "see the node's limits of files, memory and processes, and those of this pod"
                    ) from None

    async def _serve(self, start: Start, stop: asyncio.Event) -> None:
        async with self.kubelet.open():
            start("the publisher", self.publisher.run)
            start("the look at the GPUs' health", self.hardware.watch_health)
            start("the reporter", self.reporter.run)
            start("the events", self.events.run)
            start("the look at what others share", self.shared_state.run)
            start("the look at the sockets", self.kubelet.watch)
            start("the wait for the kubelet", self.kubelet.await_registration)
            for name, work in self.background:
                start(name, work)
            start("the check of our own sockets", self.kubelet.check.run)
            for name, endpoint in self.endpoints.build(self._unready, self.kubelet.check.failure):
                start(name, endpoint.run)
            start("the release of what the start needed", self._release_startup_memory)

            await pacing.wait_for_any(stop, self.shared_state.is_cut_off)
            if stop.is_set():
                log.info("told to stop")

        # Reports that are ready are still sent.
        await asyncio.gather(self.reporter.finish(sockets.DRAIN), self.events.finish(sockets.DRAIN))

    async def _release_startup_memory(self) -> None:
        """Gives back the memory that only the start needed, once the slices are published.

        The objects that exist now live as long as the process. So they are excluded from later
        garbage collections, which would cost time in the middle of a prepare. One collection takes
        ten milliseconds, so it must not delay the start.
        """
        await pacing.wait(self.publisher.published, sockets.REGISTRATION_PATIENCE)
        gc.collect()
        gc.freeze()
        with contextlib.suppress(OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).malloc_trim(0)

    def _unready(self) -> str:
        """Returns the reason why /readyz answers that we are not ready; empty if we are."""
        if lost := self.shared_state.lost_mount():
            return lost
        if not self.kubelet.registered.is_set():
            return "the kubelet has not registered us yet"
        if not self.publisher.published.is_set():
            return "our ResourceSlices are not published yet"
        return self.reports.checkpoints.trouble.unready_reason()


# ---------------------------------------------------------------------- building


def build(config: Config) -> App:
    """Builds and wires every object. Reads the credentials, but does no other I/O.

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

    # Reports to people, and the claims.
    events_ = events.EventRecorder(resources_, config.driver_name, config.node_name)
    record_node_event = functools.partial(events_.record, events.node(config.node_name))
    reporter = status.StatusReporter(resources_, config.driver_name)
    checkpoints = checkpoint.CheckpointFolder(
        folder,
        boot_id,
        on_damaged=functools.partial(record_node_event, "RecordDamaged"),
        on_unreadable=functools.partial(record_node_event, "RecordUnreadable"),
    )
    reports = claim_reports.ClaimReports(
        driver=config.driver_name,
        checkpoints=checkpoints,
        reporter=reporter,
        inventory=lambda: watch_.last or Inventory(),
    )
    claims = _claims(config, reports, watch_, instance_, events_, boot_id)
    driver_ = driver.Driver(resources=resources_, claims=claims)
    announcements_ = _announcements(config, reports, events_)

    # What the scheduler and the kubelet see.
    publisher_ = publisher.Publisher(
        resources_,
        config.driver_name,
        config.node_name,
        instance_.may_publish,
        slices.options_of(config),
    )
    streams = kubelet_health.Streams(config.node_name)

    def on_registered() -> None:
        instance_.on_registered()
        publisher_.resync()

    shared_state_ = shared_state.SharedState(
        config, instance_, claims.restorer, publisher_, streams
    )
    listener = hardware_listener.HardwareListener(
        config=config,
        watch=watch_,
        monitor=monitor_,
        publisher=publisher_,
        streams=streams,
        announcements=announcements_,
        record_event=record_node_event,
        request_restore=shared_state_.request_restore,
        folder=folder,
        boot_id=boot_id,
    )

    background = _checks(
        config,
        resources_,
        watch_,
        may_publish=instance_.may_publish,
        published=publisher_.published,
        announcements_=announcements_,
        record_node_event=record_node_event,
    )
    background += _claim_sweeps(config, driver_, listener, instance_, events_)

    return App(
        config=config,
        client=client_,
        resources=resources_,
        hardware=listener,
        driver=driver_,
        reports=reports,
        reporter=reporter,
        events=events_,
        publisher=publisher_,
        instance=instance_,
        shared_state=shared_state_,
        kubelet=sockets.KubeletSockets(
            config, calls.Calls(driver_, reporter.hurry), streams, on_registered
        ),
        endpoints=endpoint_setup.EndpointSetup(
            config=config,
            client_config=client_config,
            resources=resources_,
            watch=watch_,
            monitor=monitor_,
            checkpoints=checkpoints,
        ),
        background=tuple(background),
    )


def _checks(  # noqa: PLR0913 - each is an object that a check asks or tells
    config: Config,
    resources_: resources.Resources,
    watch_: watch.Watch,
    *,
    may_publish: Callable[[], bool],
    published: asyncio.Event,
    announcements_: announcements.Announcements,
    record_node_event: Callable[..., None],
) -> list[tuple[str, Work]]:
    """Builds the checks that report what they find to people, with their names."""
    conflict_detector = conflicts.ConflictDetector(
        resources=resources_,
        driver=config.driver_name,
        node=config.node_name,
        inventory=lambda: watch_.last,
        may_check=may_publish,
        set_conditions=functools.partial(announcements_.set_conditions, conflicts.CONDITION),
        record_event=record_node_event,
    )
    policy_check_ = policy_check.PolicyCheck(
        resources=resources_,
        driver=config.driver_name,
        node=config.node_name,
        published=published,
        record_event=record_node_event,
    )
    return [
        ("the look for conflicts", conflict_detector.run),
        ("the check of the admission policies", policy_check_.run),
    ]


def _claims(
    config: Config,
    reports: claim_reports.ClaimReports,
    watch_: watch.Watch,
    instance_: instance.Instance,
    events_: events.EventRecorder,
    boot_id: str,
) -> node_claims.NodeClaims:
    """Builds the parts that prepare claims, from the files up to the claims."""
    checkpoints = reports.checkpoints
    hardware_ = hardware.Hardware(watch=watch_, is_outdated=watch_.is_outdated)
    files = container_files.ContainerFiles(
        specs=cdi.SpecFolder(config.cdi_dir, config.driver_name),
        metadata=metadata.MetadataFolder(
            names.metadata_folder(config.kubelet_dir, config.driver_name),
            config.driver_name,
            metadata.Published(
                numa_list=config.numa_list, sharing_rules=sharing.parse(config.share)
            ),
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
    restorer_ = restorer.Restorer(
        node=config.node_name,
        checkpoints=checkpoints,
        files=files,
        hardware=hardware_,
        vm_gpus=vm_gpus_,
        reports=reports,
        record_event=events_.record,
        another_publishes=instance_.another_publishes,
    )
    return node_claims.NodeClaims(
        name=config.driver_name,
        node=config.node_name,
        checkpoints=checkpoints,
        files=files,
        hardware=hardware_,
        vm_gpus=vm_gpus_,
        restorer=restorer_,
        reports=reports,
        record_event=events_.record,
        require_libraries=config.refuses_without_libraries,
        mps_daemons=mps.Daemons(host=config.roots.host),
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


def _claim_sweeps(
    config: Config,
    driver_: driver.Driver,
    listener: hardware_listener.HardwareListener,
    instance_: instance.Instance,
    events_: events.EventRecorder,
) -> list[tuple[str, Work]]:
    """Builds the parts that prepare or unprepare claims without a call, with their names."""
    pods = functools.partial(podresources.pods, names.pod_resources_socket(config.kubelet_dir))
    lost = lost_checkpoints.LostCheckpoints(
        driver=driver_,
        pods=pods,
        another_publishes=instance_.another_publishes,
        record_event=events_.record,
        set_taints=functools.partial(listener.set_claim_taints, lost_checkpoints.TAINT),
    )
    gone = gone_claims.GoneClaims(
        driver=driver_,
        record_event=events_.record,
        set_taints=functools.partial(listener.set_claim_taints, gone_claims.TAINT),
    )
    early = early_claims.EarlyClaims(
        driver=driver_,
        may_act=instance_.may_publish,
        failed_devices=listener.failed_devices,
        set_taints=functools.partial(listener.set_claim_taints, early_claims.TAINT),
    )
    sweeps: list[tuple[str, Work]] = [
        ("the rebuilding of lost checkpoints", lost.run),
        ("the look for claims that are gone", gone.run),
        ("the preparing of claims before their pods are bound", early.run),
    ]

    # It collects once the kubelet has registered us, and after a grace period.
    if config.garbage_grace:
        collector = garbage.GarbageCollector(
            driver=driver_,
            pods=pods,
            may_collect=instance_.may_publish,
            record_event=events_.record,
            grace=config.garbage_grace,
        )
        sweeps.append(("the collection of garbage", collector.run))
    return sweeps


def _check(config: Config) -> None:
    """Raises UsageError for settings that cannot work, before anything is built."""
    if not config.node_name:
        raise errors.UsageError(
            "node-name is not set; give --node-name, or CLAIMD_NODE_NAME from spec.nodeName"
        )
    try:
        scan.check_rules(config.rules)
        sharing.parse(config.share)
    except ValueError as error:
        raise errors.UsageError(str(error)) from error
    sockets.socket_paths(config)


def _hardware(config: Config) -> tuple[watch.Watch, monitor.Monitor]:
    """Builds the watch, which passes uevents to the monitor, and the monitor, which requests scans."""
    read_symptoms = symptoms.read_gpus
    if config.nvml:
        from claimd_devices import nvml_health

        read_symptoms = nvml_health.Reader(config.roots).read_gpus
    monitor_ = monitor.Monitor(
        config.roots,
        grace=config.absent_grace,
        interval=config.health_interval,
        read_symptoms=read_symptoms,
    )
    watch_ = watch.Watch(
        config.roots, config.rules, config.rescan, _scan(config), on_uevent=monitor_.on_uevent
    )
    monitor_.request_rescan = watch_.wake
    return watch_, monitor_


def _scan(config: Config) -> watch.Scan:
    counted = functools.partial(_counted_scan, sysfs.Kept())
    if not config.nvml:
        return counted

    # Few nodes have MIG, and on fewer may the library be called. Other nodes do not load this
    # module.
    from claimd_devices import nvml

    library = nvml.Library(config.roots)
    return lambda roots, rules: library.complete(counted(roots, rules))


def _counted_scan(kept: sysfs.Kept, roots: Roots, rules: Rules) -> Inventory:
    metrics.SCANS.add()
    began = time.monotonic()
    try:
        inventory = scan.scan(roots, rules, kept=kept)
    except LookFailedError:
        metrics.SCANS_FAILED.add()
        raise
    metrics.SCAN_SECONDS.add(time.monotonic() - began)
    return inventory


# ---------------------------------------------------------------------- running


async def _keep_running(name: str, work: Work) -> None:
    """Runs one part of the plugin, and starts it again if it fails because of a bug.

    A bug in one part must not end the other parts, nor the process that pods depend on. A Fatal
    error is raised and ends everything, since only a person can help.
    """
    while True:
        try:
            return await work()
        except errors.Fatal:
            raise
        except Exception as error:
            # A part that is told to end may fail, for instance in closing a file. It must end all
            # the same.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                log.warning("%s ended with an error: %r", name, error)
                return
            log.exception("%s failed, which is a mistake in claimd; it is started again", name)
            await asyncio.sleep(RESTART)
