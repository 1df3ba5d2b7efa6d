"""The script, run as a process, with libraries that answer and libraries that misbehave."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from claimd_devices import nvml_helper
from tests.support import nvml_stub


def run(library: Path, *topics: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-I", "-S", nvml_helper.__file__, str(library), *topics]
    return subprocess.run(command, capture_output=True, check=False, env={}, timeout=30)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return tmp_path / "libnvidia-ml.so.1"


def answer(library: Path, *topics: str) -> Any:
    done = run(library, *topics)
    assert (done.returncode, done.stderr) == (0, b"")
    return json.loads(done.stdout)


def test_what_it_prints(library: Path) -> None:
    """The third GPU is lost and does not affect others. The library's own output is discarded."""
    nvml_stub.build(library, "WITHOUT_BOARD")
    part = {
        "gpu_instance": 7,
        "compute_instance": 0,
        "uuid": "MIG-00000007-0000-0000-0000-000000000000",
        "profile": "1g.10gb+me",
        "multiprocessors": 14,
        "engines": [1, 1, 0, 1, 1],
        "memory": 9728 << 20,
    }
    assert answer(library) == {
        "gpus": [
            {"address": "0000:11:00.0", "mig": True, "parts": [part]},
            {"address": "0000:13:00.0", "mig": False, "parts": []},
        ]
    }


@pytest.mark.parametrize("name", ["1c.3g.40gb", "7g.80gb", "1g.5gb", "2g.24gb+gfx", "1g.24gb-me"])
def test_names_of_profiles(library: Path, name: str) -> None:
    nvml_stub.build(library, parts=f'{{1, 0, "{name}", 14, 9728}},')
    assert answer(library)["gpus"][0]["parts"][0]["profile"] == name


def test_a_name_of_another_form_is_left_out(library: Path) -> None:
    nvml_stub.build(library, parts='{1, 0, "Device", 14, 9728},')
    assert "profile" not in answer(library)["gpus"][0]["parts"][0]


def test_what_it_prints_of_boards(library: Path) -> None:
    """The second GPU is older, is in no fabric, and cannot be asked for its load."""
    nvml_stub.build(library, mig_on=0)
    first = {
        "address": "0000:11:00.0",
        "mig": False,
        "parts": [],
        "memory": 85520809984,
        "ecc": True,
        "power_cap": 700,
        "retired_pages": 3,
        "fabric": {"state": 3, "status": 0, "cluster": "ab" * 16, "clique": 4},
    }
    second = {
        "address": "0000:13:00.0",
        "ecc": False,
        "fabric": {"state": 0, "status": 0, "cluster": "ab" * 16, "clique": 4},
    }
    assert answer(library) == {"gpus": [first, {**first, **second}], "cuda": "12.8"}


def test_what_it_measures(library: Path) -> None:
    nvml_stub.build(library)
    first = {
        "address": "0000:11:00.0",
        "busy": 87,
        "memory_used": 1 << 30,
        "milliwatts": 412500,
        "degrees": 61,
    }
    second = {**first, "address": "0000:13:00.0", "memory_used": 2 << 30}
    del second["busy"]
    assert answer(library, "measure") == {"gpus": [first, second]}


def test_mig_is_off(library: Path) -> None:
    nvml_stub.build(library, "WITHOUT_BOARD", mig_on=0)
    assert answer(library)["gpus"][0] == {"address": "0000:11:00.0", "mig": False, "parts": []}


@pytest.mark.parametrize(
    ("flag", "missing"),
    [
        ("WITHOUT_UUID", {"uuid"}),
        ("WITHOUT_NAME", {"profile"}),
        ("WITHOUT_ATTRIBUTES", {"multiprocessors", "engines", "memory"}),
    ],
)
def test_a_library_without_a_function_answers_the_rest(
    library: Path, flag: str, missing: set[str]
) -> None:
    nvml_stub.build(library, flag)
    (part,) = answer(library)["gpus"][0]["parts"]
    assert {"uuid", "profile", "multiprocessors", "engines", "memory"} - part.keys() == missing


def test_a_gpu_whose_mig_mode_is_not_told_is_left_out(library: Path) -> None:
    nvml_stub.build(library, no_mig="15")
    assert [gpu["address"] for gpu in answer(library)["gpus"]] == ["0000:11:00.0"]


def test_a_gpu_that_cannot_be_asked_is_left_out(library: Path) -> None:
    nvml_stub.build(library, "OLD")
    assert "0000:11:00.0" not in [gpu["address"] for gpu in answer(library)["gpus"]]


def test_what_went_wrong(library: Path) -> None:
    nvml_stub.build(library, init="9")
    assert answer(library) == {"error": "nvmlInit_v2: error 9"}
    library.write_text("no library at all\n" * 100)
    assert "invalid ELF header" in answer(library)["error"]


def test_a_library_of_something_else(library: Path) -> None:
    source = "int cuInit(void) { return 0; }"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True)
    assert answer(library) == {"error": "nvmlInit_v2: missing"}


def test_the_librarys_own_clean_up_is_left_out(library: Path) -> None:
    nvml_stub.build(library, crashes_in="exit")
    assert len(answer(library)["gpus"]) == 2


LIMITS = """
#include <stdio.h>
#include <sys/resource.h>
int nvmlInit_v2(void) {
    struct rlimit core, file;
    int score = 0;
    FILE *text = fopen("/proc/self/oom_score_adj", "r");
    getrlimit(RLIMIT_CORE, &core);
    getrlimit(RLIMIT_FSIZE, &file);
    fscanf(text, "%d", &score);
    return 100 + (core.rlim_max == 0) + 2 * (file.rlim_max == 1 << 20) + 4 * (score == 1000);
}
"""


def test_the_harm_of_a_library_is_limited(library: Path) -> None:
    """It writes neither a core nor a large file, and is the first to end if memory is short."""
    command = ["gcc", "-shared", "-fPIC", "-w", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=LIMITS, text=True, check=True)
    assert answer(library) == {"error": "nvmlInit_v2: error 107"}


@pytest.mark.parametrize("where", ["init", "parts"])
def test_a_crash_is_its_own(library: Path, where: str) -> None:
    nvml_stub.build(library, crashes_in=where)
    done = run(library)
    assert (done.returncode < 0, done.stdout) == (True, b"")
