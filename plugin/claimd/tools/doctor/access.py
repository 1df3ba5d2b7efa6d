"""The rights of claimd's account, and whether the admission policies restrict it to its node."""

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
    expected="every right of deploy/base/rbac.yaml, and of deploy/components/metrics-tls and "
    "prepare-before-bind where they are used",
    remedy=f"apply the manifests of claimd {__version__}, in the way that it was installed; they replace "
    "the DaemonSet, too (`kubectl diff -k deploy/base` shows what changes)\n"
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

# Selects claimd's pods, by the label in the manifests.
SELECTOR = "app.kubernetes.io/name=claimd"

_ACCOUNT = "system:serviceaccount:"


def judge_rights(account: str, denied_rights: Answer, driver: str) -> list[Finding]:
    """Returns one finding for each level of severity that missing rights have."""
    if denied_rights.value is None:
        return [RIGHTS.unknown(denied_rights.trouble, denied_rights.how)]
    missing_rights: Sequence[Right] = denied_rights.value
    if not missing_rights:
        return [RIGHTS.success(f"{account} has them all")]

    failures = []
    for level in (Level.ERROR, Level.WARNING):
        missing = [right for right in missing_rights if right.level is level]
        if missing:
            # Several verbs may have the same loss, which is then named once.
            losses: list[str] = []
            for right in missing:
                if right.without not in losses:
                    losses.append(right.without)
            verbs = ", ".join(map(str, missing))
            seen = f"{account} may not {verbs}: {'; '.join(losses)}"
            remedy = _remedy_for_rights(missing, driver)
            failures.append(RIGHTS.failure(seen, level=level, remedy=remedy))
    return failures


def _remedy_for_rights(missing: Sequence[Right], driver: str) -> str:
    """Returns a remedy for a driver name other than the default; "" if the general remedy is
    enough.
    """
    if driver == Config().driver_name or all(right.name != rights.DRIVER for right in missing):
        return ""
    return f"{RIGHTS.remedy}\nand the role's resourceNames have to say {driver}"


def judge_policy(held_to_node: Answer) -> Finding:
    """Judges whether the API server refuses slices of other nodes from this node's token."""
    if held_to_node.value is None:
        return POLICY.unknown(held_to_node.trouble, held_to_node.how)
    if held_to_node.value:
        return POLICY.success("a slice of another node is refused")
    return POLICY.failure(
        held_to_node.trouble
        or "the API server would let this node's token publish devices of another node"
    )


async def find_account(api: client.Client, node: str) -> tuple[Answer, bool]:
    """Finds the account whose rights to check. Also returns True if we are an administrator.

    In claimd's own pod this is our own account. An administrator may ask about other accounts, so
    it is the account of the claimd pod on this node.
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

    # The first pod is enough: all pods of the DaemonSet have the same account.
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
        return await _is_allowed(api, "", {"verb": "*", "group": "*", "resource": "*"})
    except errors.ApiError:
        return False


_AS_CLAIMD = "kubectl -n claimd-system exec POD -- claimd doctor"

_REVIEW_SELF = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}

_AUTHORIZATION = "/apis/authorization.k8s.io/v1"


async def _is_allowed(api: client.Client, account: str, attributes: Mapping[str, str]) -> bool:
    """Returns True if the account may do this. An empty name stands for our own account."""
    kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
    spec: Document = {"resourceAttributes": dict(attributes)}
    if account:
        namespace = account.split(":")[2]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
        spec |= {"user": account, "groups": [*groups, "system:authenticated"]}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    review = await post(api, f"{_AUTHORIZATION}/{kind.lower()}s", body)
    return bool(review.get("status", {}).get("allowed"))


async def find_denied_rights(
    api: client.Client, settings: Config, account: Answer, is_admin: bool, minor: int
) -> Answer:
    """Asks for each right that claimd needs, and returns those that the account lacks."""
    if account.value is None:
        return account

    needed = [right for right in rights.RIGHTS if right.since <= minor]
    if settings.metrics_authorization:
        needed += rights.REVIEWS
    which = settings.prepare_before_bind
    if which == "all" or (which == "slow" and settings.vfio_bind):
        needed += rights.EARLY_CLAIMS

    # Only an administrator may ask about an account that is not their own.
    subject = account.value if is_admin else ""
    reviews = []
    for right in needed:
        attributes = right.attributes(settings.driver_name)
        reviews.append(_is_allowed(api, subject, attributes))
    try:
        verdicts = await asyncio.gather(*reviews)
    except errors.ApiError as error:
        return Answer(trouble=str(error), how="kubectl auth can-i --list --as " + account.value)

    denied = []
    for right, is_allowed in zip(needed, verdicts, strict=True):
        if not is_allowed:
            denied.append(right)
    return Answer(value=tuple(denied))


async def check_policy(
    api: client.Client,
    ours: resources.Resources,
    settings: Config,
    account: Answer,
    is_admin: bool,
    denied: Answer,
) -> Answer:
    """Checks whether the admission policies restrict claimd to its node.

    With claimd's account it tries a forbidden write as a dry run. As an administrator it reads the
    policies.
    """
    if is_admin:
        return await check_bindings(api)
    if account.value is None or denied.value is None:
        return Answer(trouble=account.trouble or denied.trouble, how=_AS_CLAIMD)
    if not settings.node_name:
        return Answer(trouble=NO_NODE, how=GIVE_NODE)
    for right in denied.value:
        if right.verb == "create" and right.group == GROUP:
            how = f"mend {RIGHTS.name} first"
            return Answer(trouble="claimd may write no slice at all", how=how)

    # The policies allow everything to an account that is granted `any` on nodes, so say so if that
    # is the cause.
    try:
        is_held = await policy_check.is_held(ours, settings.driver_name, settings.node_name)
        trouble = ""
        if not is_held and await _is_allowed(api, "", _ANY_NODE):
            trouble = (
                "claimd's role grants `any` on nodes of claimd.dev: no policy holds it to its node"
            )
        return Answer(value=is_held, trouble=trouble)
    except errors.ApiError as error:
        return Answer(trouble=str(error), how="once the API server answers")


_ANY_NODE = {"group": "claimd.dev", "resource": "nodes", "verb": "any"}
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"

_HELD_RESOURCES = ("resourceslices", "resourceclaims/status")


async def check_bindings(api: client.Client) -> Answer:
    """Checks that a policy of claimd protects each resource, and that a binding makes it refuse
    requests.
    """
    policies = await get(api, f"{_ADMISSION}/validatingadmissionpolicies")
    bindings = await get(api, f"{_ADMISSION}/validatingadmissionpolicybindings")
    if policies.value is None or bindings.value is None:
        return policies if policies.value is None else bindings

    # A binding can also only warn or audit.
    denying = set()
    for binding in bindings.value.get("items") or ():
        if "Deny" in (binding["spec"].get("validationActions") or ()):
            denying.add(binding["spec"].get("policyName"))

    for resource in _HELD_RESOURCES:
        names = []
        for policy in policies.value.get("items") or ():
            if _is_our_policy(policy["spec"], resource):
                names.append(policy["metadata"]["name"])
        if not names:
            return Answer(value=False, trouble=f"no admission policy of claimd is about {resource}")
        if not denying.intersection(names):
            return Answer(
                value=False, trouble=f"the admission policy {names[0]} has no binding that denies"
            )
    return Answer(value=True)


def _is_our_policy(spec: Document, resource: str) -> bool:
    """Returns True if a policy is about this resource and its conditions name claimd.dev."""
    conditions = str(spec.get("matchConditions") or "")
    rules = (spec.get("matchConstraints") or {}).get("resourceRules") or ()
    is_matched = any(resource in (rule.get("resources") or ()) for rule in rules)
    return is_matched and "claimd.dev" in conditions
