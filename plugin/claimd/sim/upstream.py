"""Kubernetes' own scheduler and controllers, as processes instead of the simulated ones.

Each gets a kubeconfig and flags, and counts as ready when its health check succeeds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from claimd.common import errors
from claimd.kubernetes.scheduling import binding_conditions

from . import daemon
from .apiserver.server import Api

log = logging.getLogger(__name__)

SCHEDULER, CONTROLLERS = "kube-scheduler", "kube-controller-manager"
READY_WITHIN = 90.0  # seconds, as a machine may be busy
_POLL = 0.1  # seconds
_LOG_LINES = 8  # lines of the log in an error
_QPS, _BURST = "500", "1000"  # requests; the default limits slow down a cluster of its own


def find(flag: str, program: str, name: str) -> Path:
    """Returns the program's path; looks on the PATH as a shell does.

    Raises UsageError if it does not exist.
    """
    path = shutil.which(program)
    if path is None:
        raise errors.UsageError(
            f"{flag}: {program} is no program: expected the path of a {name}, "
            f"as built from k8s.io/kubernetes/cmd/{name}"
        )
    return Path(path).absolute()


class Program:
    """A process that runs while `run` runs, and is restarted if it ends."""

    def __init__(self, name: str, flag: str, words: Sequence[str], port: int, log_: Path) -> None:
        self._name, self._flag, self._port = name, flag, port
        self._daemon = daemon.Daemon({}, log_, self._warn_of_end, words)

    async def run(self) -> None:
        await self._daemon.run()

    async def wait_until_ready(self) -> None:
        """Waits for the health check.

        Raises Fatal with the end of the log if the program ends or takes too long.
        """
        try:
            async with asyncio.timeout(READY_WITHIN):
                while not await self._is_healthy():
                    if self._daemon.state == daemon.ENDED or self._daemon.restarts:
                        raise self._failure("has ended before it was ready")
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            raise self._failure(f"is not ready after {READY_WITHIN:g} s") from None

    def _failure(self, what: str) -> errors.Fatal:
        """Returns the error for a program that does not run, with the end of its log."""
        lines = [line.strip() for line in self._daemon.tail(_LOG_LINES)]
        said = [f"  {line}" for line in lines if line] or ["  (nothing)"]
        return errors.Fatal(
            f"{self._flag}: {self._name} {what}: expected a {self._name} of a release that the "
            "cluster is like; the end of what it said:",
            details=said,
        )

    async def _is_healthy(self) -> bool:
        """Asks the program's health endpoint on its own port."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = (
            False,
            ssl.CERT_NONE,
        )  # it has a self-signed certificate
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=context)
        except OSError:
            return False
        try:
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            return b" 200 " in await reader.readline()
        except OSError:
            return False
        finally:
            writer.close()

    def _warn_of_end(self) -> None:
        if self._daemon.state == daemon.ENDED:
            log.warning("%s has ended: it is started again, and its log says why", self._name)


def scheduler(
    program: Path,
    api: Api,
    folder: Path,
    binding_timeout: float = binding_conditions.TIMEOUT,
) -> Program:
    """Returns a kube-scheduler, to be started with `run`."""
    port = _free_port()
    kubeconfig = _kubeconfig(api, folder, SCHEDULER)
    # Use a file rather than flags, so that another program of Kubernetes fails on the unknown flag.
    configuration: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": str(kubeconfig),
            "qps": int(_QPS),
            "burst": int(_BURST),
        },
        "leaderElection": {"leaderElect": False},
    }
    # Releases without the feature refuse the setting.
    if binding_timeout != binding_conditions.TIMEOUT:
        setting = {"bindingTimeout": f"{binding_timeout:g}s"}
        plugins = [{"name": "DynamicResources", "args": setting}]
        configuration["profiles"] = [{"pluginConfig": plugins}]
    path = folder / f"{SCHEDULER}.yaml"
    path.write_text(json.dumps(configuration, indent=2))
    words = [str(program), f"--config={path}", *_serving(folder, SCHEDULER, port)]
    return Program(SCHEDULER, "--scheduler", words, port, folder / f"{SCHEDULER}.log")


def controllers(program: Path, api: Api, folder: Path, enabled: str) -> Program:
    """Returns a kube-controller-manager with these controllers, to be started with `run`."""
    port = _free_port()
    words = [
        str(program),
        f"--controllers={enabled}",
        f"--kubeconfig={_kubeconfig(api, folder, CONTROLLERS)}",
        f"--kube-api-qps={_QPS}",
        f"--kube-api-burst={_BURST}",
        "--leader-elect=false",
        # The program creates this folder, and its default is outside the cluster's folder.
        f"--flex-volume-plugin-dir={folder / CONTROLLERS / 'volumes'}",
        *_serving(folder, CONTROLLERS, port),
    ]
    return Program(CONTROLLERS, "--controllers", words, port, folder / f"{CONTROLLERS}.log")


def _serving(folder: Path, name: str, port: int) -> list[str]:
    """Returns the flags of the health endpoint, which needs no authentication."""
    return [
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder / name}",
        "--authentication-skip-lookup=true",
    ]


def _kubeconfig(api: Api, folder: Path, name: str) -> Path:
    """Writes a kubeconfig with the program's own user name and all rights.

    The real roles of the program do not exist in this cluster.
    """
    token = api.token_of(f"system:{name}", ["system:masters"])
    return api.kubeconfig(folder / f"{name}.kubeconfig", token=token)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
