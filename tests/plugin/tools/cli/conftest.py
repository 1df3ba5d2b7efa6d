"""Fixtures: a tree of fake GPUs, and the command line in this process."""

from collections.abc import Callable
from pathlib import Path

import pytest

from claimd.tools import cli
from claimd_devices import fake

Claimd = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tree(tmp_path: Path) -> str:
    fake.write(tmp_path / "t", fake.parse(["nvidia:h100=2", "amd:mi300x", "bmc:aspeed"]))
    return str(tmp_path / "t")


@pytest.fixture
def claimd(capsys: pytest.CaptureFixture[str]) -> Claimd:
    """Runs a command, and returns its exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return run
