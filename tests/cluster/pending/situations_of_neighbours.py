"""Pods that wait because of other pods: by affinity, anti-affinity and spread over three zones."""

from __future__ import annotations

from typing import Any

from tests.cluster.pending.documents import Object, job, labelled, near, on, tainted, with_
from tests.cluster.pending.situation import Situation, situation
from tests.support.cluster_objects import node, taint

HOST = "kubernetes.io/hostname"
ZONES = (
    node("node-a1", zone="a"),
    node("node-a2", zone="a"),
    node("node-b1", zone="b"),
    node("node-c1", zone="c"),
)
WEB = labelled(job("web"), app="web")
SECOND = labelled(job("web-2"), app="web")
SUBJECT = labelled(job(), app="web")


def among_zones(title: str, *others: Object, **spec: Any) -> Situation:
    return situation(title, *ZONES, *others, pod=with_(SUBJECT, **spec))


def spread(key: str = "zone", skew: int = 1, **more: Any) -> list[Object]:
    return [
        {
            "maxSkew": skew,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
        | more
    ]


SITUATIONS = (
    among_zones(
        "Near to a pod in its zone",
        on("node-a1", labelled(job("db"), app="db")),
        affinity=near("podAffinity", "zone", app="db"),
    ),
    among_zones(
        "Near to two pods in two zones",
        on("node-a1", labelled(job("db"), app="db")),
        on("node-b1", labelled(job("cache"), app="cache")),
        affinity={
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}}
                    for app in ("db", "cache")
                ]
            }
        },
    ),
    among_zones(
        "The first of those that want to be together",
        affinity=near("podAffinity", "zone", app="web"),
    ),
    among_zones(
        "Together where one is",
        on("node-c1", WEB),
        affinity=near("podAffinity", HOST, app="web"),
    ),
    among_zones(
        "Together by a label that no node has", affinity=near("podAffinity", "rack", app="web")
    ),
    among_zones(
        "Far from pods of its zone",
        on("node-a1", WEB),
        affinity=near("podAntiAffinity", "zone", app="web"),
    ),
    among_zones(
        "A pod keeps others out of its zone",
        on(
            "node-b1",
            with_(
                labelled(job("db"), app="db"), affinity=near("podAntiAffinity", "zone", app="web")
            ),
        ),
    ),
    among_zones("Spread over zones that are even", topologySpreadConstraints=spread()),
    among_zones(
        "Spread over zones one of which has more",
        on("node-a1", WEB),
        topologySpreadConstraints=spread(),
    ),
    among_zones(
        "Spread over hosts",
        on("node-a1", WEB),
        on("node-b1", SECOND),
        topologySpreadConstraints=spread(HOST),
    ),
    among_zones(
        "Spread by two and two are there",
        on("node-a1", WEB),
        on("node-a2", SECOND),
        topologySpreadConstraints=spread(skew=2),
    ),
    among_zones(
        "Spread over more domains than there are",
        on("node-a1", WEB),
        topologySpreadConstraints=spread(minDomains=5),
    ),
    among_zones(
        "Spread where everything is selected",
        on("node-a1", WEB),
        on("node-a2", SECOND),
        topologySpreadConstraints=spread(labelSelector={}),
    ),
    among_zones(
        "Spread and a selector leaves one zone",
        on("node-a1", WEB),
        nodeSelector={"zone": "a"},
        topologySpreadConstraints=spread(),
    ),
    among_zones(
        "Spread with nodes that are not selected",
        on("node-a1", WEB),
        nodeSelector={"zone": "a"},
        topologySpreadConstraints=spread(nodeAffinityPolicy="Ignore"),
    ),
    situation(
        "Spread with a node that is tainted",
        *ZONES[:3],
        tainted("node-c1", taint("team"), zone="c"),
        on("node-a1", WEB),
        on("node-b1", SECOND),
        pod=with_(SUBJECT, topologySpreadConstraints=spread()),
    ),
    situation(
        "Spread without nodes that are tainted",
        *ZONES[:3],
        tainted("node-c1", taint("team"), zone="c"),
        on("node-a1", WEB),
        on("node-b1", SECOND),
        pod=with_(SUBJECT, topologySpreadConstraints=spread(nodeTaintsPolicy="Honor")),
    ),
    among_zones(
        "Spread and away from others",
        on("node-a1", WEB),
        on("node-b1", SECOND),
        affinity=near("podAntiAffinity", HOST, app="web"),
        topologySpreadConstraints=spread(skew=2),
    ),
)
