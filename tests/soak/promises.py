"""What must hold of a history, and the sentence that says what did not. Pure: histories in,
problems out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.soak.folders import Glance
from tests.soak.history import ClaimLife, History, PodLife, Span

SLACK = 0.5  # seconds by which a glance may come after the file, and a watch before the glance
# seconds to run: a failed try is repeated after 60 to 90 s, and a fault may meet that one too
RUN_PATIENCE = 300.0


@dataclass(frozen=True, kw_only=True)
class Problem:
    kind: str
    text: str


@dataclass(kw_only=True)
class Judge:
    """Looks at each glance by itself, at once. The same trouble is told once."""

    problems: dict[str, Problem] = field(default_factory=dict)
    glances: int = 0
    most: int = 0  # claims that had a CDI file at the same time

    def glance(self, glance: Glance) -> None:
        self.glances += 1
        self.most = max(self.most, len(glance.specs))
        for uid, held in (*glance.specs.items(), *glance.records.items()):
            if held.damaged:
                self._say("damaged", uid, f"a file of claim {uid} is damaged: {held.damaged}")
        for uid in glance.specs.keys() - glance.records.keys():
            self._say("no record", uid, f"claim {uid} has a CDI file and no record")
        holders: dict[str, str] = {}
        for uid, held in sorted(glance.specs.items()):
            if glance.records.get(uid, held).admin:
                continue
            for device, _ in held.devices:
                other = holders.setdefault(device, uid)
                if other != uid:
                    self._say(
                        "twice",
                        f"{device} {uid}",
                        f"{device} is in the CDI files of claims {other} and {uid}",
                    )

    def _say(self, kind: str, key: str, text: str) -> None:
        self.problems.setdefault(f"{kind} {key}", Problem(kind=kind, text=text))


def judge(history: History, published: Mapping[str, str], until: float) -> list[Problem]:
    """What the whole history shows. `published` leads from devices to PCI addresses, as the slices
    have it.
    """
    problems: list[Problem] = []
    for claim in history.claims.values():
        problems += _as_allocated(claim, published)
    for pod in history.pods.values():
        if pod.running is not None:
            problems += _kept(pod, history, until)
        problems += _given(pod, history, published)
    return problems


def _as_allocated(claim: ClaimLife, published: Mapping[str, str]) -> list[Problem]:
    problems = []
    for what, spans in (("record", claim.records), ("CDI file", claim.specs)):
        for span in spans:
            devices = frozenset(device for device, _ in span.held.devices)
            if claim.allocations and devices not in claim.allocations and not span.held.damaged:
                text = f"the {what} of claim {claim.name} ({claim.uid}) has {sorted(devices)}, allocated were "
                problems.append(
                    Problem(
                        kind="not as allocated",
                        text=text + str([sorted(a) for a in claim.allocations]),
                    )
                )
            wrong = [(d, a) for d, a in span.held.devices if _address(d, published) not in (a, "")]
            if wrong:
                text = f"the {what} of claim {claim.name} ({claim.uid}) leads elsewhere than the slices say: {wrong}"
                problems.append(Problem(kind="wrong address", text=text))
    return problems


def _kept(pod: PodLife, history: History, until: float) -> list[Problem]:
    """From when it was seen to run until it was to be deleted, its claims have both files, the same
    all the time.
    """
    assert pod.running is not None
    ends = [end for end in (pod.asked, pod.over, pod.gone, until) if end is not None]
    begin, end = pod.running + SLACK, min(ends) - SLACK
    if end <= begin:
        return []
    problems = []
    for uid in pod.claims.values():
        life = history.claims.get(uid or "")
        if life is None:
            problems.append(
                Problem(kind="unknown claim", text=f"pod {pod.name} ran with {pod.claims}")
            )
            continue
        contents = set()
        for what, spans in (("record", life.records), ("CDI file", life.specs)):
            span = _covering(spans, begin, end)
            if span is None:
                text = f"pod {pod.name} ran from {begin:.1f} to {end:.1f}, the {what} of its claim {life.name} ({uid})"
                told = ", ".join(f"{s.first:.1f} to {s.last:.1f}" for s in spans) or "never"
                problems.append(
                    Problem(kind="not kept", text=f"{text} was there and the same {told}")
                )
            else:
                contents.add(span.held.devices)
        if len(contents) > 1:
            problems.append(
                Problem(
                    kind="differs",
                    text=f"record and CDI file of {life.name} ({uid}) differ: {contents}",
                )
            )
    return problems


def _covering(spans: list[Span], begin: float, end: float) -> Span | None:
    return next((span for span in spans if span.first <= begin and span.last >= end), None)


def _given(pod: PodLife, history: History, published: Mapping[str, str]) -> list[Problem]:
    """What the container says that it was given is what the scheduler chose for its pod."""
    lives = [history.claims[uid] for uid in pod.claims.values() if uid in history.claims]
    if (
        pod.given is None
        or len(lives) != len(pod.claims)
        or any(len(life.allocations) != 1 for life in lives)
    ):
        return []
    chosen = frozenset(
        _address(device, published) for life in lives for device in life.allocations[0]
    )
    if chosen == pod.given:
        return []
    text = f"the container of pod {pod.name} was given {sorted(pod.given)}, allocated were {sorted(chosen)}"
    return [Problem(kind="given another", text=text)]


def _address(device: str, published: Mapping[str, str]) -> str:
    if device in published:
        return published[device]
    return next(
        (address for name, address in published.items() if device.startswith(f"{name}-")), ""
    )


def at_the_end(
    history: History, left: list[str], surplus: list[str], patience: float = RUN_PATIENCE
) -> list[Problem]:
    """Once everything has been deleted and its time has passed."""
    problems = [Problem(kind="left over", text=f"left in the folders: {name}") for name in left]
    problems += [
        Problem(kind="left over", text=f"more than one instance would need: {what}")
        for what in surplus
    ]
    for pod in history.pods.values():
        if pod.gone is None:
            problems.append(
                Problem(
                    kind="stuck", text=f"pod {pod.name} is still there{_words(history, pod.name)}"
                )
            )
        if pod.running is not None and pod.running - pod.created > patience:
            took = pod.running - pod.created
            problems.append(
                Problem(
                    kind="late",
                    text=f"pod {pod.name} took {took:.0f} s to run{_words(history, pod.name)}",
                )
            )
    for claim in history.claims.values():
        if claim.still:
            text = f"the status of claim {claim.name} ({claim.uid}) still tells of {claim.still}, and no pod is left"
            problems.append(Problem(kind="left in status", text=text))
        if claim.gone is None and claim.allocated:
            problems.append(
                Problem(
                    kind="still allocated",
                    text=f"claim {claim.name} ({claim.uid}) is still allocated",
                )
            )
    return problems


def _words(history: History, pod: str) -> str:
    told = [words for name, words in history.refusals if name == pod]
    return f"; the kubelet said: {told[-1]}" if told else ""
