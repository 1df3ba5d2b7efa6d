"""ValidatingAdmissionPolicies: which of them are asked about a write, and what becomes of their
noes.

What they say of it is in `judging`, which is loaded with its language when there is one to ask.
Policies with parameters are kept and not asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....api.document import Document
from ..storage.store import Store
from ..types.options import ValidateAdmission
from ..types.resource import GroupResource
from ..wire.resource_request import ResourceRequest

if TYPE_CHECKING:
    from . import policy_evaluation

GROUP = "admissionregistration.k8s.io"
POLICIES = GroupResource("validatingadmissionpolicies", GROUP, "ValidatingAdmissionPolicy")
BINDINGS = GroupResource(
    "validatingadmissionpolicybindings", GROUP, "ValidatingAdmissionPolicyBinding"
)


class Policies:
    def __init__(self, store: Store) -> None:
        self._store = store

    def admission(self, request: ResourceRequest) -> ValidateAdmission:
        """What the registry asks before it writes what this request wants."""

        def admit(old: Document | None, new: Document | None) -> None:
            bindings = self._store.page(BINDINGS).items
            if not bindings or request.served.group == GROUP:
                return
            from . import policy_evaluation

            write = policy_evaluation.PolicyResult(self._store, request, old, new)
            for binding in bindings:
                spec = binding.get("spec") or {}
                policy = self._store.find(POLICIES, "", spec.get("policyName", ""))
                if (
                    policy
                    and not (policy.get("spec") or {}).get("paramKind")
                    and write.meets(policy, spec.get("matchResources"))
                ):
                    _ask(write, policy, binding)

        return admit


def _ask(write: policy_evaluation.PolicyResult, policy: Document, binding: Document) -> None:
    name, bound = policy["metadata"]["name"], binding["metadata"]["name"]
    for denial in write.denials(policy.get("spec") or {}):
        actions = (binding.get("spec") or {}).get("validationActions") or ["Deny"]
        said = f"ValidatingAdmissionPolicy '{name}' with binding '{bound}'"
        if "Warn" in actions:
            write.request.warnings.append(f"Validation failed for {said}: {denial}")
        if "Deny" in actions:
            raise write.refusal(f"{said} denied request: {denial}", denial)
