"""Questions to the Go oracle of CEL: one long-lived process, built once, answering an expression and devices a line."""

import json
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCE = Path(__file__).resolve().parent
BINARY = ROOT / "build" / "oracle" / "cel"


def why_not():
    """Why there is no oracle here; None if there is."""
    return None if shutil.which("go") else "no Go here: nothing is compared with Kubernetes' own CEL"


class Oracle:
    def __init__(self):
        BINARY.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["go", "build", "-p", "1", "-o", str(BINARY), "."], cwd=SOURCE, check=True, capture_output=True)
        self._process = subprocess.Popen([BINARY], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, expression, devices, new=False):
        question = {"expression": expression, "devices": [_wire(device) for device in devices], "new": new}
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait(10)


def _wire(device):
    return {
        "driver": device.driver,
        "attributes": {name: _attribute(value) for name, value in device.attributes.items()},
        "capacity": dict(device.capacity),
        "multiple": device.allow_multiple_allocations,
    }


def _attribute(value):
    """A DeviceAttribute as the API has it."""
    plural = isinstance(value, list)
    one = value[0] if plural else value
    kind = {bool: "bool", int: "int", str: "string"}.get(type(one), "version")
    return {kind + "s" if plural else kind: value}
