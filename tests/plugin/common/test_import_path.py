"""Another Python process that imports the claimd that this one has."""

import os
import subprocess
import sys

import claimd
import claimd_devices
from claimd.common import import_path

FILES = "import claimd, claimd_devices; print(claimd.__file__); print(claimd_devices.__file__)"


def test_another_process_imports_the_same(tmp_path):
    path = import_path.python_path("/more")
    assert path.split(os.pathsep)[-1] == "/more"
    line = [sys.executable, "-S", "-c", FILES]
    env = {"PYTHONPATH": path}
    printed = subprocess.run(line, env=env, cwd=tmp_path, capture_output=True, check=True).stdout
    assert printed.decode().split() == [claimd.__file__, claimd_devices.__file__]
