from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import driver_layouts

from . import build, images, table

Write = Callable[..., Path]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = "not root" if os.geteuid() else build.missing()
    for item in items:
        item.add_marker(pytest.mark.timeout(300))
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_sessionfinish() -> None:
    table.write()


@pytest.fixture(scope="session", autouse=True)
def everything_is_built() -> None:
    for kind in images.KINDS:
        images.folder(kind)


@pytest.fixture
def layout(tmp_path: Path) -> Write:
    """`layout("gke")` writes a driver as such a node has it; it is laid over the machine's root."""

    def write(name: str, version: str = driver_layouts.VERSION, folder: str = "host") -> Path:
        host = tmp_path / folder
        driver_layouts.write(host, name, version, fill=functools.partial(build.fill, version))
        return host

    return write


@pytest.fixture(params=["runc", "crun"])
def runtime(request: pytest.FixtureRequest) -> Iterator[str]:
    if shutil.which(request.param) is None:
        pytest.skip(f"no {request.param} here")
    yield request.param
