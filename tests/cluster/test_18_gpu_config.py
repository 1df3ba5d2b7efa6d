"""Line 18: real API servers of several releases refuse wrong configurations when they are written.

The cases are those of tests/test_gpu_configs.py, in each version of resource.k8s.io that is served.
`python -m tests.cluster --matrix` runs them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests import test_gpu_configs as cases
from tests.cluster import test_15_rights as rights
from tests.cluster.rig import places

release = rights.release


class RealCluster(rights.RealCluster):
    """A real API server with the policy for configurations, and no other policy."""

    refusal = cases.Cluster.refusal

    async def set_up(self) -> None:
        """Applies the policy and waits until the API server evaluates it."""
        await cases.Cluster.set_up(self)  # type: ignore[arg-type]
        await self._decides({"kind": "Wrong"}, refused=True)

    async def tear_down(self) -> None:
        await cases.Cluster.tear_down(self)  # type: ignore[arg-type]
        await self._decides({"kind": "Wrong"}, refused=False)

    async def clean_up(self) -> None:
        await super().clean_up()
        await self._decides({"kind": "Wrong"}, refused=False)

    async def _decides(self, parameters: Any, *, refused: bool) -> None:
        """Waits until the API server refuses, or accepts, these parameters.

        It takes a moment until an API server evaluates a new policy or forgets a deleted one.
        """
        async with asyncio.timeout(60):
            while bool(await self.refusal("deviceclasses", "v1", parameters)) != refused:
                await asyncio.sleep(0.2)


@pytest.fixture
async def cluster(release: str, tmp_path: Path) -> AsyncIterator[RealCluster]:
    real_cluster = RealCluster(places.STATE / "admin.kubeconfig", tmp_path, "", "")
    await real_cluster.clean_up()
    await real_cluster.set_up()
    yield real_cluster


test_what_is_wrong_is_refused_when_it_is_written = (
    cases.test_what_is_wrong_is_refused_when_it_is_written
)
test_one_wrong_among_others_is_found = cases.test_one_wrong_among_others_is_found
test_several_faults_at_once_are_refused_wherever_prepare_refuses = (
    cases.test_several_faults_at_once_are_refused_wherever_prepare_refuses
)
test_what_is_for_other_drivers_is_not_ours_to_judge = (
    cases.test_what_is_for_other_drivers_is_not_ours_to_judge
)
test_the_largest_that_the_api_takes_stay_within_the_costs_of_the_language = (
    cases.test_the_largest_that_the_api_takes_stay_within_the_costs_of_the_language
)
test_what_stands_already_can_be_changed_and_deleted = (
    cases.test_what_stands_already_can_be_changed_and_deleted
)
