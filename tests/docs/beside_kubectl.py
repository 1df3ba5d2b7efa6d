"""What `kubectl describe` and `claimd explain` say of the same pods, as Markdown.

kubectl's words are recordings (tests/cases/pending), ours are made now.
"""

from __future__ import annotations

import re

from claimd.tools.explain import text
from tests.cluster.pending.situations import SITUATIONS
from tests.support import recorded_pods

_EVENT = re.compile(r"^\s+(Warning|Normal)\s+(\S+)\s+.*?\s(\S*scheduler)\s+(.*)$", re.M)
# The scheduler's words stand above, and are repeated only as far as the answer differs from them.
_QUOTE = re.compile(r"^  the scheduler says: .*\n(?!    but)|^(  the scheduler says: ).*$", re.M)
# What its answer says depends on how fast the machine is.
_LEFT_OUT = ("more-combinations-than-there-is-time-for",)


def sections() -> str:
    """Each pod that waits, with both answers, in the order of the situations."""
    order = [situation.name for situation in SITUATIONS]
    recordings = sorted(recorded_pods.situations(), key=lambda each: order.index(each.name))
    parts = []
    for recorded in recordings:
        if not recorded.node and recorded.name not in _LEFT_OUT:
            parts.append(_section(recorded))
    return "\n\n".join(parts)


def _section(recorded: recorded_pods.Pod) -> str:
    events = [
        f"{kind}  {reason}  {said}" for kind, reason, _, said in _EVENT.findall(recorded.describe)
    ]
    described = "\n".join(dict.fromkeys(events)) or "Events: <none>"
    answer = text.as_text(recorded_pods.explained(recorded).answer)
    ours = _QUOTE.sub(_shortened, answer).rstrip()
    return (
        f"### {recorded.title}\n\n"
        f"```\n$ kubectl describe pod {recorded.pod}\n{described}\n\n"
        f"$ claimd explain pod/{recorded.pod}\n{ours}\n```"
    )


def _shortened(quote: re.Match[str]) -> str:
    return f"{quote[1]}as above" if quote[1] else ""
