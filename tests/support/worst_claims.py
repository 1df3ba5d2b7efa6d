"""The largest claims that the API lets anybody write, and the largest that claimd serves."""

from __future__ import annotations

from typing import Any

from tests.support.worlds import gpu, gpu_config, opaque, result

DEVICES = 128  # four times as many as the API allows
RESULTS = [result(gpu(index).name, f"r{index}") for index in range(DEVICES)]

Configs = list[dict[str, Any]]


def _of_all(environment: dict[str, str]) -> dict[str, Any]:
    return opaque(gpu_config(environment=environment))


def _of_each_device(environment: dict[str, str]) -> Configs:
    """31 configurations, so that neighbours have different ones; a spec says nothing once for all."""
    configs = []
    for number in range(31):
        requests = [f"r{i}" for i in range(DEVICES) if i % 31 == number]
        variables = {f"{name}{number}": value for name, value in environment.items()}
        configs.append(opaque(gpu_config(environment=variables), requests=requests))
    return configs


# 32 configurations of 10 KiB each.
REFUSED: dict[str, Configs] = {
    "large": [_of_all({f"V{i}": "x" * 10_000}) for i in range(32)],
    "many": [_of_all({f"V{i}_{j}": "" for j in range(700)}) for i in range(32)],
    "as many as may be": [_of_all({f"V{i}_{j}": "" for j in range(32)}) for i in range(32)],
}

# As much as the budgets allow, in what costs most to keep: line feeds.
SERVED: dict[str, Configs] = {
    "one for all": [_of_all({"A": "\n" * 980})],
    "of each device": _of_each_device({"A": "\n" * 980}),
    "many of each device": _of_each_device({f"A{i}_": "" for i in range(26)}),
}
