"""The rights that claimd needs at the API server. A test compares the table with deploy's role."""

from __future__ import annotations

from dataclasses import dataclass

from .check import Level

# The minor version of Kubernetes from which a report of devices needs a right of its own.
OWN_RIGHT_SINCE = 36
# A placeholder for the driver's name.
DRIVER = "DRIVER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One verb on one resource, and the loss if it is not granted."""

    group: str
    resource: str  # may have a subresource after a slash
    verb: str
    name: str = ""  # the object's name, or DRIVER
    without: str
    level: Level = Level.ERROR
    since: int = 0  # the minor version of Kubernetes that begins to require it

    def attributes(self, driver: str) -> dict[str, str]:
        """Returns the right as the attributes of an access review."""
        resource, _, subresource = self.resource.partition("/")
        attributes = {
            "group": self.group,
            "resource": resource,
            "subresource": subresource,
            "verb": self.verb,
            "name": driver if self.name == DRIVER else self.name,
        }
        return {key: value for key, value in attributes.items() if value}

    def __str__(self) -> str:
        group = f".{self.group}" if self.group else ""
        return f"{self.verb} {self.resource}{group}"


_DRA = "resource.k8s.io"
_SLICES = "the published GPUs can be out of date, or none are published"
_STATUS = "claims' status.devices does not say what was given"
_POLICY = "the admission policies do not hold claimd to its node, or refuse what it writes"

RIGHTS = (
    Right(group=_DRA, resource="resourceclaims", verb="get", without="no claim is prepared"),
    Right(
        group=_DRA,
        resource="resourceclaims/status",
        verb="patch",
        without=_STATUS,
        level=Level.WARNING,
    ),
    *(
        Right(
            group=_DRA,
            resource="resourceclaims/driver",
            verb=f"associated-node:{verb}",
            name=DRIVER,
            without=f"{_STATUS} (Kubernetes 1.36 and later ask for it)",
            level=Level.WARNING,
            since=OWN_RIGHT_SINCE,
        )
        for verb in ("patch", "update")
    ),
    *(
        Right(group=_DRA, resource="resourceslices", verb=verb, without=_SLICES)
        for verb in ("get", "list", "watch", "create", "update", "delete")
    ),
    Right(group="", resource="nodes", verb="get", without="the slices have no owner"),
    Right(
        group="events.k8s.io",
        resource="events",
        verb="create",
        without="nobody is told by Events",
        level=Level.WARNING,
    ),
    Right(group="claimd.dev", resource="nodes", verb="own", without=_POLICY),
    Right(group="claimd.dev", resource="drivers", verb="serve", name=DRIVER, without=_POLICY),
)

# Needed in addition if the setting metrics-authorization is on (deploy/components/metrics-tls).
_SCRAPES = "every scrape of the metrics is answered by 503"
REVIEWS = (
    Right(
        group="authentication.k8s.io",
        resource="tokenreviews",
        verb="create",
        without=_SCRAPES,
        level=Level.WARNING,
    ),
    Right(
        group="authorization.k8s.io",
        resource="subjectaccessreviews",
        verb="create",
        without=_SCRAPES,
        level=Level.WARNING,
    ),
)

# Needed in addition if the setting prepare-before-bind has an effect (deploy/components/
# prepare-before-bind).
_LATE = "pods are bound before their claims are prepared, and stay where a GPU cannot be prepared"
EARLY_CLAIMS = tuple(
    Right(
        group="resource.k8s.io",
        resource="resourceclaims",
        verb=verb,
        without=_LATE,
        level=Level.WARNING,
    )
    for verb in ("list", "watch")
)
