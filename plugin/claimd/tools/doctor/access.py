"""Who claimd is to the API server: what its account may do, and whether admission holds it to its node."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from claimd import __version__
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.resource import GROUP
from claimd.kubernetes.kube import client, errors, resources
from claimd.node.config import Config
from claimd.node.report import policy_check

from . import rights
from .ask import GIVE_NODE, NO_NODE, Answer, get, post
from .check import Check, Finding, Level
from .rights import Right

RIGHTS = Check(
    name="rights",
    level=Level.ERROR,
    looks_at="each verb that claimd needs, by reviews of access",
    expected="every right of deploy/base/rbac.yaml, and of deploy/components/metrics-tls where it is used",
    remedy=f"apply the manifests of claimd {__version__}, in the way that it was installed; they write "
    "the DaemonSet anew, too (`kubectl diff -k deploy/base` shows what changes)\n"
    "installed with kubectl:\n"
    "    kubectl apply -k deploy/base\n"
    "with an overlay of your own, by its folder:\n"
    "    kubectl apply -k OVERLAY\n"
    "with Helm:\n"
    "    helm upgrade claimd deploy/chart -n claimd-system --reuse-values",
)

POLICY = Check(
    name="admission-policy",
    level=Level.WARNING,
    looks_at="a write that the admission policies have to refuse, as a dry run; for an "
    "administrator the policies and their bindings",
    expected="the API server refuses a slice of another node to the token of this one",
    remedy="if rights is told above, do that first and run doctor again; if this is still told\n"
    "    kubectl apply -f deploy/base/admission.yaml\n"
    "(`kubectl diff -f deploy/base/admission.yaml` shows which policy or binding is missing)",
)

SELECTOR = "app.kubernetes.io/name=claimd"  # of claimd's pods, as the manifests have them

_ACCOUNT = "system:serviceaccount:"


def judge_rights(account: str, denied_rights: Answer, driver: str) -> list[Finding]:
    if denied_rights.value is None:
        return [RIGHTS.unseen(denied_rights.trouble, denied_rights.how)]
    lacking_all: Sequence[Right] = denied_rights.value
    if not lacking_all:
        return [RIGHTS.well(f"{account} has them all")]

    found = []
    for level in (Level.ERROR, Level.WARNING):
        lacking = [right for right in lacking_all if right.level is level]
        if lacking:
            losses = "; ".join(dict.fromkeys(right.without for right in lacking))
            verbs = ", ".join(map(str, lacking))
            seen = f"{account} may not {verbs}: {losses}"
            found.append(RIGHTS.failed(seen, level=level, remedy=_to_grant(lacking, driver)))
    return found


def _to_grant(lacking: Sequence[Right], driver: str) -> str:
    if driver == Config().driver_name or all(right.name != rights.DRIVER for right in lacking):
        return ""
    return f"{RIGHTS.remedy}\nand the role's resourceNames have to say {driver}"


def judge_policy(held_to_node: Answer) -> Finding:
    if held_to_node.value is None:
        return POLICY.unseen(held_to_node.trouble, held_to_node.how)
    if held_to_node.value:
        return POLICY.well("a slice of another node is refused")
    return POLICY.failed(
        held_to_node.trouble
        or "the API server would let this node's token publish devices of another node"
    )


async def who(api: client.Client, node: str) -> tuple[Answer, bool]:
    """Whose rights are to be looked at, and whether we are an administrator who may ask about others.

    In claimd's own pod it is who we are; for an administrator, the account of the pod on this node.
    """
    try:
        review = await post(api, "/apis/authentication.k8s.io/v1/selfsubjectreviews", _REVIEW_SELF)
    except errors.ApiError as error:
        return Answer(trouble=f"it is not known who we are: {error}", how=_AS_CLAIMD), False
    name = str(review.get("status", {}).get("userInfo", {}).get("username", ""))

    if name.startswith(_ACCOUNT) and not name.endswith(":default"):
        return Answer(value=name), False
    if not await _is_admin(api):
        why = f"we are {name or 'nobody'} here, whose rights are not claimd's"
        return Answer(trouble=why, how=_AS_CLAIMD), False

    query = {"labelSelector": SELECTOR}
    if node:
        query["fieldSelector"] = f"spec.nodeName={node}"
    pods = (await get(api, "/api/v1/pods", **query)).value or {}
    for pod in pods.get("items") or ():
        account = (pod.get("spec") or {}).get("serviceAccountName") or "default"
        return Answer(value=f"{_ACCOUNT}{pod['metadata']['namespace']}:{account}"), True
    return Answer(
        trouble="there is no claimd pod whose account could be asked about", how=_AS_CLAIMD
    ), True


async def _is_admin(api: client.Client) -> bool:
    try:
        return await _allowed(api, "", {"verb": "*", "group": "*", "resource": "*"})
    except errors.ApiError:
        return False


_AS_CLAIMD = "kubectl -n claimd-system exec POD -- claimd doctor"

_REVIEW_SELF = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}

_AUTHORIZATION = "/apis/authorization.k8s.io/v1"


async def _allowed(api: client.Client, account: str, attributes: Mapping[str, str]) -> bool:
    """Whether the account may, or we ourselves if there is none."""
    kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
    spec: Document = {"resourceAttributes": dict(attributes)}
    if account:
        namespace = account.split(":")[2]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
        spec |= {"user": account, "groups": [*groups, "system:authenticated"]}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    review = await post(api, f"{_AUTHORIZATION}/{kind.lower()}s", body)
    return bool(review.get("status", {}).get("allowed"))


async def denied(
    api: client.Client, settings: Config, account: Answer, is_admin: bool, minor: int
) -> Answer:
    """Which of our rights are missing."""
    if account.value is None:
        return account
    asked = [right for right in rights.RIGHTS if right.since <= minor]
    if settings.metrics_authorization:
        asked += rights.REVIEWS
    subject = account.value if is_admin else ""
    try:
        allowed = await asyncio.gather(
            *(_allowed(api, subject, right.attributes(settings.driver_name)) for right in asked)
        )
    except errors.ApiError as error:
        return Answer(trouble=str(error), how="kubectl auth can-i --list --as " + account.value)
    pairs = zip(asked, allowed, strict=True)
    return Answer(value=tuple(right for right, may in pairs if not may))


async def held(
    api: client.Client,
    ours: resources.Resources,
    settings: Config,
    account: Answer,
    is_admin: bool,
    denied: Answer,
) -> Answer:
    """Whether admission holds claimd to its node: tried as claimd, read as an administrator."""
    if is_admin:
        return await policies_bound(api)
    if account.value is None or denied.value is None:
        return Answer(trouble=account.trouble or denied.trouble, how=_AS_CLAIMD)
    if not settings.node_name:
        return Answer(trouble=NO_NODE, how=GIVE_NODE)
    if any(right.verb == "create" and right.group == GROUP for right in denied.value):
        return Answer(trouble="claimd may write no slice at all", how=f"mend {RIGHTS.name} first")
    try:
        is_held = await policy_check.is_held(ours, settings.driver_name, settings.node_name)
        trouble = ""
        if not is_held and await _allowed(api, "", _ANY_NODE):
            trouble = (
                "claimd's role grants `any` on nodes of claimd.dev: no policy holds it to its node"
            )
        return Answer(value=is_held, trouble=trouble)
    except errors.ApiError as error:
        return Answer(trouble=str(error), how="once the API server answers")


_ANY_NODE = {"group": "claimd.dev", "resource": "nodes", "verb": "any"}
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"

_HELD_RESOURCES = ("resourceslices", "resourceclaims/status")


async def policies_bound(api: client.Client) -> Answer:
    """Whether there are policies that look at who may `own` a node, each with a binding that denies."""
    policies = await get(api, f"{_ADMISSION}/validatingadmissionpolicies")
    bindings = await get(api, f"{_ADMISSION}/validatingadmissionpolicybindings")
    if policies.value is None or bindings.value is None:
        return policies if policies.value is None else bindings

    denying = {
        binding["spec"].get("policyName")
        for binding in bindings.value.get("items") or ()
        if "Deny" in (binding["spec"].get("validationActions") or ())
    }
    for resource in _HELD_RESOURCES:
        names = [
            policy["metadata"]["name"]
            for policy in policies.value.get("items") or ()
            if _holds(policy["spec"], resource)
        ]
        if not names:
            return Answer(value=False, trouble=f"no admission policy of claimd is about {resource}")
        if not denying.intersection(names):
            return Answer(
                value=False, trouble=f"the admission policy {names[0]} has no binding that denies"
            )
    return Answer(value=True)


def _holds(spec: Document, resource: str) -> bool:
    """Whether a policy is one of ours about this resource."""
    conditions = str(spec.get("matchConditions") or "")
    rules = (spec.get("matchConstraints") or {}).get("resourceRules") or ()
    named = any(resource in (rule.get("resources") or ()) for rule in rules)
    return named and "claimd.dev" in conditions
