"""Selectors: claimd's CEL refuses a new selector if and only if the API server refuses it."""

from __future__ import annotations

import json
import random
import re

from claimd.kubernetes import cel
from tests.cluster.conftest import ROOT
from tests.cluster.kubectl import Kubectl, KubectlError, Object
from tests.oracle.cel.expressions import Expressions

CASES = ROOT / "tests/cases/cel"
RANDOM, LEAST = 250, 300


def expressions() -> list[str]:
    lines = [
        line for path in sorted(CASES.glob("*.txt")) for line in path.read_text().splitlines()[::2]
    ]
    return lines + [Expressions(random.Random(seed)).generate() for seed in range(RANDOM)]


def is_refused(expression: str) -> bool:
    try:
        cel.compile(expression, new=True)
    except cel.CompileError:
        return True
    return False


def device_class(number: int, expression: str) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": f"suite-{number}"},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def refusals(kube: Kubectl, asked: dict[int, str]) -> dict[int, str]:
    """Returns the API server's reasons for the expressions that it refuses. This is a dry run."""
    items = [device_class(number, expression) for number, expression in asked.items()]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    try:
        kube(
            "create",
            "--dry-run=server",
            "--validate=false",
            "--output=name",
            "--filename=-",
            text=text,
        )
    except KubectlError as error:
        parts = re.split(
            r'DeviceClass(?:\.resource\.k8s\.io)? "suite-([0-9]+)" is invalid', str(error)
        )
        return {int(number): said for number, said in zip(parts[1::2], parts[2::2], strict=True)}
    return {}


def test_the_api_server_refuses_the_same(kube: Kubectl) -> None:
    asked = dict(enumerate(expressions()))
    refused = refusals(kube, asked)
    assert refused, "the API server refused no expression; it may not have read them"

    # The API server goes on after a refusal, so it has accepted the others.
    accepted = {number: expression for number, expression in asked.items() if number not in refused}
    assert refusals(kube, accepted) == {}

    different = [
        (expression, refused.get(number, "taken"))
        for number, expression in asked.items()
        if (number in refused) != is_refused(expression)
    ]
    too_dear = sum("too complex" in said for said in refused.values())
    print(f"{len(asked)} compared, {len(refused)} refused, {too_dear} of them for their cost")
    assert len(asked) >= LEAST and too_dear
    assert different == []
