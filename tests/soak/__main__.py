"""The soak's command line: `python -m tests.soak --help`, or `make soak`.

Exit codes: 0 all was kept, 1 something was not."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from pathlib import Path

from tests.cluster.rig import places
from tests.cluster.rig.places import IMAGE
from tests.soak import breaking, cluster, outage, report, rolling, soak
from tests.soak.stage import Stage

OLDER = "8e3b441"  # the build before records were changed
SCENARIOS = ("soak", "outage", "rolling", "builds")


def main() -> int:
    parser = arguments()
    asked = parser.parse_args()
    if unknown := set(asked.scenario) - set(SCENARIOS):
        parser.error(
            f"there is no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}"
        )
    told = []
    with cluster.up(keep=asked.keep, same_image=asked.same_image):
        for scenario in asked.scenario or SCENARIOS:
            told.append(run_scenario(scenario, asked))
            print(report.table(told[-1]), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(told, indent=1))
    return 0 if all(each["ok"] for each in told) else 1


def run_scenario(scenario: str, asked: argparse.Namespace) -> dict[str, object]:
    stage = Stage(scenario)
    stage.say(f"seed {asked.seed}")
    if scenario == "soak":
        soak.run(
            stage, minutes=asked.minutes, rate=asked.rate, seed=asked.seed, sabotage=asked.sabotage
        )
    elif scenario == "outage":
        outage.run(stage, minutes=asked.outage_minutes, frozen=asked.frozen, seed=asked.seed)
    elif scenario == "rolling":
        rolling.run(stage, [IMAGE] * asked.rolls, seed=asked.seed)
    elif not (older := cluster.image_of(asked.older or cluster.newest_tag() or OLDER)):
        stage.say("SKIPPED: this clone has no such commit")
        return report.document(scenario, [], {"skipped": "this clone has no such commit"})
    else:
        rolling.run(stage, [older, IMAGE] * (asked.rolls // 2), seed=asked.seed)
    return report.document(scenario, stage.problems, {"seed": asked.seed, **stage.figures})


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument(
        "scenario", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)} (default: all)"
    )
    parser.add_argument("--minutes", type=float, default=10, help="of the soak (default 10)")
    parser.add_argument(
        "--rate", type=float, default=66, help="pods a minute in the soak (default 66)"
    )
    parser.add_argument(
        "--outage-minutes", type=float, default=5, help="of the API server's absence (default 5)"
    )
    parser.add_argument(
        "--frozen",
        action="store_true",
        help="in the outage it is not gone, it only does not answer",
    )
    parser.add_argument(
        "--rolls", type=int, default=4, help="rolling updates under load (default 4)"
    )
    parser.add_argument(
        "--older",
        metavar="COMMIT",
        help=f"the older of two builds (default: newest tag, else {OLDER})",
    )
    parser.add_argument(
        "--same-image", action="store_true", help="do not build the image of this tree"
    )
    parser.add_argument(
        "--seed", type=int, default=random.randrange(10**6), help="of all chance (default: any)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="the report as JSON too")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up")
    parser.add_argument(
        "--sabotage",
        choices=sorted(breaking.WAYS),
        default="",
        help="a soak that has to be found broken",
    )
    return parser


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("tests.soak: needs root: it kills the rig's daemons")
    try:
        sys.exit(main())
    except places.RigError as error:
        sys.exit(f"tests.soak: {error}")
