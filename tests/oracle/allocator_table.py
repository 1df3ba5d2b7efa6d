"""The cases of the tests of Kubernetes 1.38's allocator, with its answers, for ours.

    python -m tests.oracle.allocator_table

writes tests/cases/allocator/table-1.38.jsonl: a world and an answer a line. It builds a copy of the
module, in which the tests print their cases instead of checking them. No case keeps its name.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from claimd.kubernetes.allocator import features
from tests.support import allocating, oracle

MODULE = "k8s.io/dynamic-resource-allocation"
SOURCES = oracle.SOURCES / "table"
RECORDED = Path(__file__).parents[1] / "cases/allocator/table-1.38.jsonl"


def main():
    answers = print_cases(copy_module())
    lines = [json.dumps(shortened(json.loads(line)), sort_keys=True) for line in answers]
    RECORDED.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} cases in {RECORDED.name}")


def shortened(case):
    """Returns the case without empty fields, its answer as `comparable` has it."""
    case = without_nulls(case) | {"answer": case["answer"]}
    answer = allocating.renumbered(case["answer"])
    # The tests' own list of classes has other words than the API server.
    unknown = re.compile(r"(could not retrieve device class (\S+):).*")
    answer["error"] = unknown.sub(r'\1 deviceclass "\2" not found', answer.get("error", ""))
    case["answer"] = allocating.comparable(answer)
    case["features"] = sorted({*case["features"], features.RULES_OF_1_38})
    results = case.pop("taken")
    held = {"metadata": {"name": "holder", "namespace": "default"}}
    held["status"] = {"allocation": {"devices": {"results": results}}}
    return {"taken": [held] if results else [], "slices": [], "classes": []} | case


def without_nulls(value):
    if isinstance(value, dict):
        return {name: without_nulls(of) for name, of in value.items() if of is not None}
    if isinstance(value, list):
        return [without_nulls(of) for of in value]
    return value


def copy_module():
    """Returns a copy of the module that prints the cases."""
    modules = SOURCES.parent / "allocator/k138.mod"
    environment = os.environ | oracle.toolchain(modules)
    listed = subprocess.run(
        ["go", "list", f"-modfile={modules.name}", "-m", "-f", "{{.Dir}}", MODULE],
        cwd=modules.parent,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    copy = oracle.BUILT / "table"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(listed.stdout.strip(), copy)
    subprocess.run(["chmod", "-R", "u+w", copy], check=True)

    # The module's requirements, with the replacement of the oracle's.
    replaced = re.search(r"^replace .*$", modules.read_text(), re.M)
    with (copy / "go.mod").open("a") as file:
        file.write(f"\n{replaced[0]}\n")

    tests = copy / "structured/internal/allocatortesting"
    for path in tests.glob("*.go"):
        text = path.read_text().replace('"k8s.io/ktesting"', f'"{MODULE}/ktesting"')
        text = re.sub(r"^func runTestAllocator\(.*?^}\n", "", text, flags=re.S | re.M)
        path.write_text(text)
    for name, folder in (
        ("run.go", tests),
        ("ktesting.go", copy / "ktesting"),
        ("main.go", copy / "structured/table"),
    ):
        folder.mkdir(exist_ok=True)
        shutil.copy(SOURCES / name, folder)
    return copy


def print_cases(copy):
    modules = SOURCES.parent / "allocator/k138.mod"
    done = subprocess.run(
        ["go", "run", "-p", "1", "-mod=mod", "./structured/table"],
        cwd=copy,
        env=os.environ | oracle.toolchain(modules),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.splitlines()


if __name__ == "__main__":
    main()
