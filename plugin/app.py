"""The composition root: the only place that builds objects, starts servers and tasks, and wires
them to each other.

`build` does no I/O; `App.run` starts and stops everything in the order that the kubelet's contract
asks for. What the parts do is theirs.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import gc
import logging
import signal
import time
import uuid
from collections.abc import Callable, Coroutine
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devices import monitor, scan, watch
from devices.gpu import Inventory, Roots, Rules
from devices.health import HealthReport

from . import endpoint, errors, instance, metrics, names, pacing
from .config import Config
from .kube import auth, client, resources
from .kubelet import dra, podresources, registration, server
from .kubelet import health as kubelet_health
from .prepare import cdi, checkpoint, driver, garbage
from .publish import publisher
from .report import conflicts, events, health, health_state, rights, status

log = logging.getLogger(__name__)

# threads at most: a call has 32 claims, which wait for the disk together; an idle node has one
SIDE_BY_SIDE = 32
TICK = 0.5  # seconds between two glances at what others share with us
REGISTRATION_PATIENCE = 30.0  # before we say that the kubelet should have come
DRAIN = (
    0.5  # seconds for calls under way when we are told to stop; the whole end stays within a second
)
RESTART = 5.0  # seconds until a part that failed by a mistake of ours is started again


@dataclass(slots=True, kw_only=True)
class App:
    config: Config
    client: client.Client
    resources: resources.Resources
    watch: watch.Watch
    monitor: monitor.Monitor
    streams: kubelet_health.Streams
    checkpoints: checkpoint.CheckpointFolder
    driver: driver.Driver
    reporter: status.StatusReporter
    events: events.EventRecorder
    garbage: garbage.GarbageCollector
    conflicts: conflicts.ConflictDetector
    publisher: publisher.Publisher
    rights: rights.RightsCheck
    instance: instance.Instance
    calls: dra.Calls
    boot: str  # its id
    scanned: asyncio.Event = field(default_factory=asyncio.Event)
    registered: asyncio.Event = field(default_factory=asyncio.Event)
    changed: bool = False  # the inventory, since the CDI files were made
    later: asyncio.TimerHandle | None = None  # when taints get another effect

    async def run(self) -> None:
        """Serves until SIGTERM or SIGINT."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
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

    async def _start_and_serve(self, group: asyncio.TaskGroup, stop: asyncio.Event) -> None:
        tasks: list[asyncio.Task[None]] = []

        def start(what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
            tasks.append(group.create_task(_always(what, work), name=what))

        asyncio.get_running_loop().set_default_executor(
            futures.ThreadPoolExecutor(SIDE_BY_SIDE, "claimd")
        )
        self.instance.enter()
        self.monitor.restore(health_state.load(self._folder, self.boot))
        start(
            "the watch of the slices", self.resources.slices.run
        )  # the API server is asked while we scan
        start("the watch of the hardware", lambda: self.watch.run(self._on_change))
        await pacing.wait_for_any(self.scanned, stop)
        if not stop.is_set():
            await self._restore()
            await self._serve(start, stop)
        for task in tasks:
            task.cancel()
        await self.calls.finish(DRAIN / 2)
        await self.client.close()
        self.instance.leave()

    async def _serve(
        self,
        start: Callable[[str, Callable[[], Coroutine[Any, Any, None]]], None],
        stop: asyncio.Event,
    ) -> None:
        config = self.config
        dra_socket, registration_socket = self._sweep()
        services = (*dra.SERVICES, *kubelet_health.SERVICES)
        registrar = registration.Registration(
            config.driver_name, dra_socket, services, self._on_registered
        )
        async with (
            server.Socket(dra_socket, self._add_services, DRAIN) as calls,
            server.Socket(
                registration_socket, lambda served: registration.add_to(served, registrar), DRAIN
            ) as door,
        ):
            start("the publisher", self.publisher.run)
            start("the look at the GPUs' health", lambda: self.monitor.run(self._on_health))
            start("the reporter", self.reporter.run)
            start("the events", self.events.run)
            if config.garbage_grace:
                start("the collection of garbage", self.garbage.run)
            start("the look for rivals", self.conflicts.run)
            start("the glance at what others share", self._tick)
            start("the glance at the sockets", lambda: _mend(calls, door))
            start("the check of our rights", self.rights.run)
            start("the wait for the kubelet", lambda: self._await_registration(registrar))
            if config.endpoint:
                start("the endpoint", endpoint.Endpoint(config.endpoint, self._unready).run)
            _settle()
            await stop.wait()
            log.info("told to stop")
            self.streams.close()

    async def _restore(self) -> None:
        try:
            await self.driver.restore()
            await self.driver.report_all()
        except (OSError, errors.ClaimError) as error:
            log.error("cannot make the CDI files what the checkpoints say, trying again: %s", error)
            self.changed = True

    def _sweep(self) -> tuple[Path, Path]:
        config = self.config
        server.sweep(self._folder, names.is_dra_socket)
        server.sweep(
            config.kubelet_dir / "plugins_registry",
            lambda name: names.is_registration_socket(name, config.driver_name),
        )
        return _sockets(config)

    @property
    def _folder(self) -> Path:
        return names.plugin_folder(self.config.kubelet_dir, self.config.driver_name)

    def _on_registered(self) -> None:
        self.instance.registered()
        self.registered.set()
        self.publisher.resync()

    def _on_change(self, inventory: Inventory) -> None:
        log.info(
            "%d GPUs; %d other display devices are left alone",
            len(inventory.gpus),
            len(inventory.skipped),
        )
        metrics.GPUS.replace(collections.Counter(gpu.vendor for gpu in inventory.gpus))
        # Else it is published with what follows from it.
        if not self.monitor.on_inventory(inventory):
            self._publish()
        self.changed = self.scanned.is_set()
        self.scanned.set()

    def _on_health(self, report: HealthReport) -> None:
        health_state.save(self._folder, self.boot, self.monitor.state)
        metrics.SICK.replace(
            collections.Counter(finding.kind for _, found in report.findings for finding in found)
        )
        self._publish()
        self.driver.judge(report)

    def _publish(self) -> None:
        """What there is and how it is, from the same moment: a GPU that vanished is still looked up
        for its taint.
        """
        inventory, report, now = self.watch.last or Inventory(), self.monitor.last, time.time()
        taints = health.taints(
            report, failed=self.config.taint_failed, degraded=self.config.taint_degraded, now=now
        )
        if self.later is not None:
            self.later.cancel()
        wait = health.next_eviction(report, now)
        self.later = (
            asyncio.get_running_loop().call_later(wait, self._publish) if wait is not None else None
        )
        self.publisher.set(Inventory.of((*inventory.gpus, *report.retained)), taints)
        self.streams.set(health.of_devices(inventory.gpus, report))

    def _add_services(self, grpc_server: server.GrpcServer) -> None:
        dra.add_to(grpc_server, self.calls)
        kubelet_health.add_to(grpc_server, self.streams)

    async def _tick(self) -> None:
        """A glance now and then, at what others may have changed without telling us.

        A container that restarts asks nothing, so its CDI file must be there already; a glance also
        finds a folder that was removed and made anew, which a watch on the old folder would not.
        And an instance that died leaves the publishing to us.
        """
        published = False
        while True:
            await asyncio.sleep(TICK)
            try:
                if self.changed:
                    self.changed = False
                    await self._restore()  # numbers of device nodes may be others now
                await self.driver.repair()
                self.instance.refresh()
                if (may := self.instance.may_publish()) != published:
                    published = may
                    self.publisher.resync()
                    self.streams.poke()
            except (OSError, errors.ClaimError) as error:
                log.warning("cannot put right what others have changed, trying again: %s", error)

    async def _await_registration(self, registrar: registration.Registration) -> None:
        while not self.registered.is_set():
            if not await pacing.wait(self.registered, REGISTRATION_PATIENCE):
                folder = self.config.kubelet_dir / "plugins_registry"
                log.warning(
                    "not registered after %.0f s: %s; is %s the registry folder of a running kubelet, "
                    "under the same path as on the host?",
                    REGISTRATION_PATIENCE,
                    registrar.last_seen,
                    folder,
                )

    def _unready(self) -> str:
        if not self.registered.is_set():
            return "the kubelet has not registered us yet"
        if not self.publisher.published.is_set():
            return "our ResourceSlices are not published yet"
        return ""


def build(config: Config) -> App:
    """Every object, wired. No I/O but reading the credentials; nothing is started."""
    _check(config)
    identity = config.pod_uid or uuid.uuid4().hex
    folder = names.plugin_folder(config.kubelet_dir, config.driver_name)
    client_ = client.Client(
        auth.client_config(config.kubeconfig, config.service_account), agent="claimd"
    )
    resources_ = resources.Resources(client_, config.driver_name, config.node_name)
    watch_, monitor_ = _hardware(config)
    events_ = events.EventRecorder(resources_, config.driver_name, config.node_name)
    about_node = functools.partial(events_.record, events.node(config.node_name))
    boot = health_state.boot_id(config.roots)
    checkpoints = checkpoint.CheckpointFolder(
        folder, boot, functools.partial(about_node, "RecordDamaged")
    )
    reporter = status.StatusReporter(resources_, config.driver_name)
    instance_ = instance.Instance(folder, identity)
    driver_ = driver.Driver(
        name=config.driver_name,
        node=config.node_name,
        resources=resources_,
        checkpoints=checkpoints,
        specs=cdi.SpecFolder(config.cdi_dir, config.driver_name),
        reporter=reporter,
        hardware=watch_,
        record_event=events_.record,
    )
    publisher_ = publisher.Publisher(
        resources_,
        config.driver_name,
        config.node_name,
        instance_.may_publish,
        numa_list=config.numa_list,
    )
    return App(
        config=config,
        client=client_,
        resources=resources_,
        watch=watch_,
        monitor=monitor_,
        streams=kubelet_health.Streams(config.node_name),
        checkpoints=checkpoints,
        driver=driver_,
        reporter=reporter,
        events=events_,
        garbage=garbage.GarbageCollector(
            driver=driver_,
            pods=functools.partial(
                podresources.pods, names.pod_resources_socket(config.kubelet_dir)
            ),
            # not before the kubelet has registered us: first it has its turn
            may_collect=instance_.may_publish,
            record_event=events_.record,
            grace=config.garbage_grace,
        ),
        conflicts=conflicts.ConflictDetector(
            resources=resources_,
            driver=config.driver_name,
            node=config.node_name,
            inventory=lambda: watch_.last,
            may_check=instance_.may_publish,
            set_conditions=functools.partial(driver_.say, conflicts.CONDITION),
            record_event=about_node,
        ),
        publisher=publisher_,
        rights=rights.RightsCheck(
            resources=resources_,
            driver=config.driver_name,
            node=config.node_name,
            published=publisher_.published,
            record_event=about_node,
        ),
        instance=instance_,
        calls=dra.Calls(driver_),
        boot=boot,
    )


def _check(config: Config) -> None:
    """What would not work is refused before anything is built."""
    if not config.node_name:
        raise errors.UsageError(
            "node-name is not set; give --node-name, or CLAIMD_NODE_NAME from spec.nodeName"
        )
    try:
        scan.check_rules(config.rules)
    except ValueError as error:
        raise errors.UsageError(str(error)) from error
    _sockets(config)


def _hardware(config: Config) -> tuple[watch.Watch, monitor.Monitor]:
    monitor_ = monitor.Monitor(
        config.roots, grace=config.absent_grace, interval=config.health_interval
    )
    watch_ = watch.Watch(
        config.roots, config.rules, config.rescan, _counted, on_uevent=monitor_.on_uevent
    )
    monitor_.request_rescan = watch_.wake
    return watch_, monitor_


def _counted(roots: Roots, rules: Rules) -> Inventory:
    metrics.SCANS.add()
    return scan.scan(roots, rules)


def _sockets(config: Config) -> tuple[Path, Path]:
    """The DRA socket and the registration socket; refused here if a path is too long for a socket."""
    where = config.kubelet_dir, config.driver_name, config.pod_uid
    return names.dra_socket(*where), names.registration_socket(*where)


async def _always(what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """A mistake of ours in one part must not end the others, nor the process that pods depend on."""
    while True:
        try:
            return await work()
        except errors.Fatal:
            raise
        except Exception:
            log.exception("%s failed, which is a mistake in claimd; it is started again", what)
            await asyncio.sleep(RESTART)


async def _mend(*sockets: server.Socket) -> None:
    while True:
        await asyncio.sleep(TICK)
        for socket in sockets:
            await socket.mend()


def _settle() -> None:
    """Start-up made garbage and long-lived objects: drop the one, and leave the other out of later
    collections.
    """
    gc.collect()
    gc.freeze()
    with contextlib.suppress(OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
