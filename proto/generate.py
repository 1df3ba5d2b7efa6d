"""Generates plugin/claimd/kubernetes/kubelet_api from the .proto files next to this script (`make proto`).

With a folder as argument they go there instead, for comparison. The generator is an old pinned one:
stubs refuse a runtime older than their generator, so the oldest serves the widest range. A virtual
path gives every file a name of its own, so that all can be loaded in one process.
"""

import os
import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).resolve().parent
PACKAGE = "claimd/kubernetes/kubelet_api"


def generate(root: Path) -> None:
    """Writes the stubs to root/claimd/kubernetes/kubelet_api; SystemExit if protoc refuses the files."""
    out = root / PACKAGE
    out.mkdir(parents=True, exist_ok=True)

    # protoc looks for its plugins in PATH.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    well_known = resources.files("grpc_tools") / "_proto"
    outputs = [f"--{kind}_out={root}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    files = sorted(str(Path(PACKAGE) / path.relative_to(HERE)) for path in HERE.rglob("*.proto"))
    if protoc.main(["protoc", f"-I{PACKAGE}={HERE}", f"-I{well_known}", *outputs, *files]) != 0:
        raise SystemExit("protoc failed; see above")

    (out / "__init__.py").write_text(
        '"""Generated from proto/ by `make proto`. Nothing here is written by hand."""\n'
    )


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "plugin")
