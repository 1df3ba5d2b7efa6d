"""What Kubernetes' own CEL said of an expression, kept as a line of tests/cases/cel/recorded.txt.

A line holds, with tabs between: the estimate for an expression that is created (`refused`, or `dear`
beyond the limit), for each of the devices its value and its cost (`true 5`, `error 3`, `dear`
beyond the limit), and the expression.

    python -m tests.support.cel_records

asks the oracle anew about every line: a new expression is a line without answers, after a tab.
"""

from pathlib import Path

from claimd.kubernetes import cel
from claimd.kubernetes.cel import meter
from tests.support import cel_asking, oracle

FOLDER = Path(__file__).parents[1] / "cases/cel"
RECORDED = FOLDER / "recorded.txt"

FULL = cel.Device(
    "gpu.example.com",
    {
        "model": "h100",
        "vendor": "nvidia",
        "text": "a.b-c",
        "cores": 3,
        "index": 0,
        "numbers": [1, 2, 3],
        "features": ["a", "b"],
        "empties": [""],
        "healthy": True,
        "shared": False,
        "driverVersion": cel.Version("535.129.3"),
        "firmware": cel.Version("1.2.3-rc.1"),
        "claimd.dev/driver": cel.Version("1.2.3"),
        "claimd.dev/cores": 4,
        "claimd.dev/model": "A100-SXM4",
    },
    {"memory": "80Gi", "slots": "1500m", "claimd.dev/slots": "3"},
)
BARE = cel.Device("gpu.example.com", {"model": "", "cores": -1}, {"claimd.dev/memory": "1k"}, True)
DEVICES = (FULL, BARE)


def written(answer, created):
    """The oracle's two answers about an expression, as a line has them."""
    estimate = str(created["estimate"])
    if created.get("compile"):
        estimate = "refused"
    elif created["estimate"] > meter.LIMIT:
        estimate = "dear"

    results = []
    for result in answer["results"]:
        value = "error" if result.get("error") else str(result["value"]).lower()
        results.append("dear" if result["cost"] > meter.LIMIT else f"{value} {result['cost']}")
    return [estimate, *results]


def main():
    texts = [line.rpartition("\t")[2] for line in RECORDED.read_text().splitlines()]
    lines = []
    with oracle.Oracle("cel") as kubernetes:
        for text in texts:
            answer = cel_asking.theirs(kubernetes, text, DEVICES)
            created = cel_asking.theirs(kubernetes, text, [], new=True)
            if not (answer.get("compile") or answer.get("panic") or created.get("panic")):
                lines.append("\t".join((*written(answer, created), text)))
    RECORDED.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
