"""Starts an OCI runtime on a machine that is itself a container: `oci.py RUNTIME WORD…`.

conmon and containerd's shims run this file in place of the OCI runtime. So it needs no other module
of the project, and only the standard library of any Python 3.

It removes from the container's specification what such a machine cannot do:

- The machine may lack the capability SYS_RESOURCE. Then privileged containers cannot have it, and
  oom_score_adj cannot become lower than it is. containerd takes both into account, CRI-O does not.
- crun refuses to work with cgroups v1 and v2 at once, so cgroups v2 are unmounted for it.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path

UNIFIED = Path("/sys/fs/cgroup/unified")
HUGETLB = Path("/sys/fs/cgroup/hugetlb")
# The number of this capability, which is also its bit in the sets of /proc/PID/status.
SYS_RESOURCE = 24


def main(runtime: str, words: list[str]) -> None:
    for option, value in itertools.pairwise(words):
        if option == "--bundle":
            _change(Path(value, "config.json"))
        elif option == "--process":
            _change(Path(value))

    command = [runtime, *words]
    if UNIFIED.is_dir() and Path(runtime).name == "crun":
        script = f'umount -l {UNIFIED}; exec "$@"'
        command = ["unshare", "--mount", "--propagation=slave", "sh", "-c", script, "sh", *command]
    os.execvp(command[0], command)


def _change(file: Path) -> None:
    """Changes the specification of a container, or of a process that is started in a container."""
    document = json.loads(file.read_text())

    process = document.get("process", document)
    if not _has_sys_resource():
        process["oomScoreAdj"] = max(process.get("oomScoreAdj", 0), 0)
        for granted in process.get("capabilities", {}).values():
            if "CAP_SYS_RESOURCE" in granted:
                granted.remove("CAP_SYS_RESOURCE")

    # The hugetlb controller may be in cgroups v2, which crun does not see here.
    if UNIFIED.is_dir() and not HUGETLB.is_dir():
        document.get("linux", {}).get("resources", {}).pop("hugepageLimits", None)

    file.write_text(json.dumps(document))


def _has_sys_resource() -> bool:
    lines = Path("/proc/self/status").read_text().splitlines()
    (bounds,) = [int(line.split()[1], 16) for line in lines if line.startswith("CapBnd:")]
    return bool(bounds >> SYS_RESOURCE & 1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
