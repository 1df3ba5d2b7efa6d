"""Starts an OCI runtime on a machine that is itself a container, in place of the runtime alone:
`oci.py RUNTIME WORD…`. A file of its own, since it is run by conmon and by shims; the standard
library alone, of any Python 3.

What such a machine cannot do is taken out of what is asked of it: nobody there has the capability
SYS_RESOURCE, to give it to privileged containers or to make a process less likely to be ended for
want of memory than it is itself (containerd sees to both, CRI-O to neither), and crun refuses
control groups of both kinds at once.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path

UNIFIED = Path("/sys/fs/cgroup/unified")
HUGETLB = Path("/sys/fs/cgroup/hugetlb")
SYS_RESOURCE = 24  # its bit


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
    """Changes a container's specification, or that of a process in one."""
    document = json.loads(file.read_text())

    process = document.get("process", document)
    if not _has_sys_resource():
        process["oomScoreAdj"] = max(process.get("oomScoreAdj", 0), 0)
        for granted in process.get("capabilities", {}).values():
            if "CAP_SYS_RESOURCE" in granted:
                granted.remove("CAP_SYS_RESOURCE")

    # Linux's hybrid layout has this controller where crun does not look any more.
    if UNIFIED.is_dir() and not HUGETLB.is_dir():
        document.get("linux", {}).get("resources", {}).pop("hugepageLimits", None)

    file.write_text(json.dumps(document))


def _has_sys_resource() -> bool:
    lines = Path("/proc/self/status").read_text().splitlines()
    (bounds,) = [int(line.split()[1], 16) for line in lines if line.startswith("CapBnd:")]
    return bool(bounds >> SYS_RESOURCE & 1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
