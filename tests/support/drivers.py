"""A Driver wired over parts of the test, and calls for it that answer in plain values."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from claimd.kubernetes.kube import resources
from claimd.node.prepare import (
    cdi,
    checkpoint,
    claim_reports,
    container_files,
    driver,
    metadata,
    node_claims,
    restorer,
    vm_gpus,
)
from claimd.node.prepare import hardware as hardware_module
from claimd.node.prepare.call_time import CallTime
from claimd.node.prepared import ClaimRef, PreparedClaim
from tests.support.worlds import DRIVER, NODE


def build(
    *,
    resources_: resources.Resources,
    checkpoints: checkpoint.CheckpointFolder,
    specs: cdi.SpecFolder,
    metadata_folder: metadata.MetadataFolder,
    reports: claim_reports.ClaimReports,
    watch: hardware_module.Watch,
) -> driver.Driver:
    """Returns a driver that is wired as `app` wires it, without GPUs for virtual machines."""
    hardware = hardware_module.Hardware(watch=watch)
    files = container_files.ContainerFiles(specs=specs, metadata=metadata_folder, hardware=hardware)
    gpus = vm_gpus.VmGpus(node=NODE, checkpoints=checkpoints, hardware=hardware)
    claims = node_claims.NodeClaims(
        name=DRIVER,
        node=NODE,
        checkpoints=checkpoints,
        files=files,
        hardware=hardware,
        vm_gpus=gpus,
        restorer=restorer.Restorer(
            node=NODE,
            checkpoints=checkpoints,
            files=files,
            hardware=hardware,
            vm_gpus=gpus,
            reports=reports,
        ),
        reports=reports,
    )
    return driver.Driver(resources=resources_, claims=claims)


async def prepare(
    driver_: driver.Driver, refs: Iterable[ClaimRef], deadline: float
) -> dict[str, PreparedClaim | str]:
    """Prepares the claims at the same time; returns for each, by uid, the claim or the error."""
    refs = list(refs)
    call_time = CallTime(deadline)
    outcomes = await asyncio.gather(*(driver_.prepare(ref, call_time) for ref in refs))

    answers: dict[str, PreparedClaim | str] = {}
    for ref, outcome in zip(refs, outcomes, strict=True):
        assert (outcome.prepared is None) == bool(outcome.error), outcome
        if outcome.prepared is None:
            answers[ref.uid] = outcome.error
        else:
            driver_.claims.report_new(outcome.prepared)
            answers[ref.uid] = outcome.prepared
    return answers


async def unprepare(
    driver_: driver.Driver, refs: Iterable[ClaimRef], deadline: float | None = None
) -> dict[str, str | None]:
    """Unprepares the claims at the same time; returns for each, by uid, None or the error."""
    refs = list(refs)
    call_time = None if deadline is None else CallTime(deadline)
    outcomes = await asyncio.gather(*(driver_.unprepare(ref, call_time) for ref in refs))

    assert not any(outcome.prepared for outcome in outcomes)
    return {ref.uid: outcome.error or None for ref, outcome in zip(refs, outcomes, strict=True)}
