"""What was found, as a table for people and as JSON. Values in, text out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tests.soak.history import History
from tests.soak.promises import Problem

SHOWN = 12  # problems of a kind in the table


def waits(values: Iterable[float]) -> dict[str, float]:
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        "p50": round(ordered[len(ordered) // 2], 2),
        "p90": round(ordered[len(ordered) * 9 // 10], 2),
        "worst": round(ordered[-1], 2),
    }


def figures(history: History) -> dict[str, Any]:
    pods, claims = history.pods.values(), history.claims.values()
    ran = [each for each in pods if each.running is not None]
    return {
        "pods": {
            "made": len(pods),
            "ran": len(ran),
            "deleted": sum(each.gone is not None for each in pods),
            "restarted": sum(each.restarted for each in pods),
            "askedWhatTheyWereGiven": sum(each.given is not None for each in pods),
        },
        "claims": {
            "seen": len(claims),
            "prepared": sum(bool(each.records) for each in claims),
            "reported": sum(each.reported is not None for each in claims),
        },
        "seconds": {
            "created to running": waits(
                each.running - each.created for each in ran if each.running is not None
            ),
            "deletion to gone": waits(
                each.gone - each.asked for each in pods if each.gone and each.asked
            ),
            "claim deleted, record still there": waits(
                max(0.0, each.records[-1].last - each.gone)
                for each in claims
                if each.gone and each.records
            ),
            "longest between two glances": {"worst": round(history.worst_gap, 2)},
        },
        "refusals": dict(Counter(_short(words) for _, words in history.refusals).most_common(8)),
    }


def document(scenario: str, problems: list[Problem], figures_: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "scenario": scenario,
        "ok": not problems,
        "problems": [{"kind": each.kind, "text": each.text} for each in problems],
        **figures_,
    }


def table(told: Mapping[str, Any]) -> str:
    lines = [f"{told['scenario']}: {'kept' if told['ok'] else 'BROKEN'}"]
    for section, rows in told.items():
        if section in ("scenario", "ok", "problems"):
            continue
        if not isinstance(rows, Mapping):
            lines.append(f"  {section:34} {rows}")
            continue
        lines.append(f"  {section}")
        for key, value in rows.items():
            shown = (
                "  ".join(f"{k} {v}" for k, v in value.items())
                if isinstance(value, Mapping)
                else value
            )
            lines.append(f"    {key:40} {shown}")
    by_kind = Counter(each["kind"] for each in told["problems"])
    for kind, count in by_kind.items():
        lines.append(f"  PROBLEM {kind}: {count}")
        lines += [f"    {each['text']}" for each in told["problems"] if each["kind"] == kind][
            :SHOWN
        ]
    return "\n".join(lines)


def _short(words: str) -> str:
    """The kind of a refusal: what is particular to a claim left out."""
    return " ".join(word if not any(c.isdigit() for c in word) else "…" for word in words.split())[
        :160
    ]
