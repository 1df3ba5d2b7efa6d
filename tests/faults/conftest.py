"""Campaigns have no limit of time, since two of them on one machine take twice as long."""

import pytest

from tests.support import progress


@pytest.fixture(autouse=True, scope="session")
def ended_when_nothing_moves():
    with progress.watched():
        yield


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/faults/" in item.path.as_posix():
            item.add_marker(pytest.mark.timeout(0))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport():
    progress.moved()
