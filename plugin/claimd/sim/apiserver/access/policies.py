"""ValidatingAdmissionPolicies: finds the policies of a write, and enforces their denials.

`policy_evaluation` evaluates a policy. It is loaded, together with CEL, when the first policy is
evaluated. Policies with parameters are stored, but not evaluated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from claimd.kubernetes.api.document import Document

from ..storage.store import Store
from ..types.options import ValidateAdmission
from ..types.resource import GroupResource
from ..wire.resource_request import ResourceRequest

if TYPE_CHECKING:
    from .policy_evaluation import Admission

GROUP = "admissionregistration.k8s.io"
POLICIES = GroupResource("validatingadmissionpolicies", GROUP, "ValidatingAdmissionPolicy")
BINDINGS = GroupResource(
    "validatingadmissionpolicybindings", GROUP, "ValidatingAdmissionPolicyBinding"
)


class Policies:
    """The policies and bindings in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def admission(self, request: ResourceRequest) -> ValidateAdmission:
        """Returns the function that checks each write of this request against the policies.

        The registry calls it before it writes. A denial is raised, or it is added to the warnings
        of the request, according to the binding.
        """

        def validate(old: Document | None, new: Document | None) -> None:
            bindings = self._store.page(BINDINGS).items
            # Policies do not apply to policies and bindings, so that a wrong one can be corrected.
            if not bindings or request.served.group == GROUP:
                return
            from .policy_evaluation import Admission

            admission = Admission(self._store, request, old, new)
            for binding in bindings:
                policy = self._policy_of(binding)
                bound_resources = (binding.get("spec") or {}).get("matchResources")
                if policy and admission.matches(policy, bound_resources):
                    _enforce(admission, policy, binding)

        return validate

    def _policy_of(self, binding: Document) -> Document | None:
        name = (binding.get("spec") or {}).get("policyName", "")
        policy = self._store.find(POLICIES, "", name)
        if policy and (policy.get("spec") or {}).get("paramKind"):
            return None
        return policy


def _enforce(admission: Admission, policy: Document, binding: Document) -> None:
    names = f"'{policy['metadata']['name']}' with binding '{binding['metadata']['name']}'"
    actions = (binding.get("spec") or {}).get("validationActions") or ["Deny"]
    for denial in admission.denials(policy.get("spec") or {}):
        if "Warn" in actions:
            warning = f"Validation failed for ValidatingAdmissionPolicy {names}: {denial.message}"
            admission.request.warnings.append(warning)
        if "Deny" in actions:
            message = f"ValidatingAdmissionPolicy {names} denied request: {denial.message}"
            raise admission.refusal(message, denial)
