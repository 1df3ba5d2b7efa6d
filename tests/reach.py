"""A plugin of pytest for `tests.mutants`: which lines each test reaches, and which tests to run.

With REACH_WRITTEN it writes a file that says of every test how long it took, which lines of the
sources ran during it. What another process ran is not seen. With REACH_CHOSEN it runs the tests
that such a file names, in that order.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

from tests import mirrors

ROOT = mirrors.ROOT

# What ran while the tests were imported, and before and after them.
OUTSIDE = ""


class Recorder:
    """Records while the tests run; the file is written at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        sources = [str(ROOT / "plugin"), str(ROOT / "devices")]
        self._coverage = coverage.Coverage(data_file=None, config_file=False, source=sources)
        self._coverage.start()

        # A module that is imported late would seem to be reached by one test alone.
        for module in mirrors.modules():
            importlib.import_module(mirrors.import_name(module))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context(OUTSIDE)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        lines: dict[str, dict[str, list[int]]] = {}
        for path in sorted(data.measured_files()):
            module = str(Path(path).relative_to(ROOT))
            for line, tests in data.contexts_by_lineno(path).items():
                for test in tests:
                    lines.setdefault(test, {}).setdefault(module, []).append(line)
        document = {"seconds": self._seconds, "lines": lines, "failed": sorted(self._failed)}
        self._path.write_text(json.dumps(document))


class Chooser:
    def __init__(self, tests: list[str]) -> None:
        self._tests = tests

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Where the mutant has changed which tests there are, all of them run."""
        by_name = {item.nodeid: item for item in items}
        if all(test in by_name for test in self._tests):
            items[:] = [by_name[test] for test in self._tests]


def pytest_configure(config: pytest.Config) -> None:
    written = os.environ.pop("REACH_WRITTEN", "")
    if written:
        config.pluginmanager.register(Recorder(Path(written)))

    chosen = os.environ.pop("REACH_CHOSEN", "")
    if chosen:
        config.pluginmanager.register(Chooser(json.loads(Path(chosen).read_text())))
