"""CustomResourceDefinitions: their defaults, their validation, and the kinds that they define."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from claimd.kubernetes.api.document import Document

from .. import kinds
from ..kinds import ApiResource
from ..rules import formats
from ..rules.field_errors import FieldErrors
from ..types import structure as structures
from ..types.kind import Kind
from ..types.resource import GroupResource
from ..types.structure import Structure
from . import definition_schema

SCOPES = ("Cluster", "Namespaced")
COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
MAX_SELECTABLE = 8
APPROVED = "api-approved.kubernetes.io"
PROTECTED = (".k8s.io", ".kubernetes.io")
STATUS_PATHS = {"specReplicasPath": (".spec.",), "statusReplicasPath": (".status.",)}


# ---------------------------------------------------------------- defaults


def with_defaults(definition: Document) -> Document:
    given = definition.get("spec")
    if not isinstance(given, dict):
        return definition
    names = dict(given.get("names") or {})
    kind = names.get("kind") or ""
    names["singular"] = names.get("singular") or kind.lower()
    if kind:
        names["listKind"] = names.get("listKind") or f"{kind}List"

    conversion = given.get("conversion") or {"strategy": "None"}
    spec = given | {"names": names, "conversion": conversion}
    return definition | {"spec": spec}


def add_status(definition: Document, old: Document | None) -> Document:
    """Returns the definition with a status that lists the versions of stored objects."""
    status: Document = dict((old or {}).get("status") or {})
    if old is None:
        status = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}}
    stored = list(status.get("storedVersions") or ())
    storage = storage_version(definition)
    if storage and storage not in stored:
        stored.append(storage)
    return definition | {"status": status | {"storedVersions": stored or None}}


def storage_version(definition: Document) -> str:
    for version in versions_of(definition):
        if version.get("storage"):
            return str(version.get("name") or "")
    return ""


def versions_of(definition: Document) -> list[Document]:
    return (definition.get("spec") or {}).get("versions") or []


# ---------------------------------------------------------------- validation


def validate(errors: FieldErrors, definition: Document, old: Document | None) -> None:
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    if old is None:
        plural, group = names.get("plural") or "", spec.get("group") or ""
        name = definition["metadata"].get("name", "")
        if name and name != f"{plural}.{group}":
            why = 'must be spec.names.plural+"."+spec.group'
            errors.invalid("metadata.name", name, why)

    # The order of the checks is that of a real server, because it is the order of the causes.
    _validate_group(errors, spec.get("group") or "")
    if not spec.get("scope"):
        errors.required("spec.scope")
    elif spec["scope"] not in SCOPES:
        errors.not_supported("spec.scope", spec["scope"], SCOPES)

    _validate_versions(errors, spec)
    for name in ("plural", "singular", "kind", "listKind"):
        if not names.get(name):
            errors.required(f"spec.names.{name}")

    validate_names(errors, names, "spec.names")
    _validate_conversion(errors, spec.get("conversion") or {})
    if old is not None:
        _validate_change(errors, spec, old)
    _validate_stored_versions(errors, definition)
    _validate_approval(errors, definition, old)
    if spec.get("preserveUnknownFields"):
        why = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
            "spec.versions[*].schema instead"
        )
        errors.invalid("spec.preserveUnknownFields", True, why)


def _validate_group(errors: FieldErrors, group: str) -> None:
    problems = formats.dns_subdomain(group) if group else []
    if not group:
        errors.required("spec.group")
    elif problems:
        errors.invalid("spec.group", group, ",".join(problems))
    elif "." not in group:
        errors.invalid("spec.group", group, "should be a domain with at least one dot")


def _validate_versions(errors: FieldErrors, spec: Document) -> None:
    versions: list[Document] = spec.get("versions") or []
    schemas = [(version.get("schema") or {}).get("openAPIV3Schema") for version in versions]
    if not all(schemas) or not versions:
        for index, schema in enumerate(schemas):
            if schema is None:
                errors.required(f"spec.versions[{index}].schema.openAPIV3Schema")

    # Errors in parts that are equal in all versions are reported once, for the whole spec.
    shares = {part: _is_shared(versions, part) for part in _PARTS}
    selects_alike = _is_shared(versions, "selectableFields")
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        _validate_version(errors, version, path, shares)
        if shares["schema"] and not selects_alike and version.get("selectableFields"):
            why = "may only be set when `version.schema.openAPIV3Schema` is not included"
            errors.invalid(f"{path}.selectableFields", "", why)

    found = [version.get("name") for version in versions]
    if len(set(found)) != len(found):
        errors.invalid("spec.versions", versions, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        why = "must have exactly one version marked as storage version"
        errors.invalid("spec.versions", versions, why)
    if versions:
        _validate_version_name(errors, versions[0], "spec.version")
        in_common = {part: not is_shared for part, is_shared in shares.items()}
        _validate_parts(errors, versions[0], "spec", in_common)


def _validate_version(
    errors: FieldErrors, version: Document, path: str, shares: dict[str, bool]
) -> None:
    _validate_version_name(errors, version, f"{path}.name")
    _validate_deprecation(errors, version, path)
    _validate_parts(errors, version, path, shares)


def _validate_version_name(errors: FieldErrors, version: Document, path: str) -> None:
    name = str(version.get("name") or "")
    problems = formats.dns1035_label(name)
    if problems:
        errors.invalid(path, name, ",".join(problems))


def _validate_parts(
    errors: FieldErrors, version: Document, path: str, elsewhere: dict[str, bool]
) -> None:
    """Checks the parts of a version, without those that `elsewhere` marks as done."""
    for part, validate_part in _PARTS.items():
        if not elsewhere[part]:
            name = "validation" if path == "spec" and part == "schema" else part
            validate_part(errors, version, f"{path}.{name}")
    if not elsewhere["schema"]:
        _validate_selectable(errors, version, path)


def _is_shared(versions: Sequence[Document], part: str) -> bool:
    """Returns True if all versions have this part and it is the same in all of them."""
    said = [version.get(part) for version in versions]
    return bool(said) and said[0] is not None and all(each == said[0] for each in said)


def _validate_schema(errors: FieldErrors, version: Document, path: str) -> None:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    has_status = (version.get("subresources") or {}).get("status") is not None
    if isinstance(schema, dict):
        definition_schema.validate(errors, schema, f"{path}.openAPIV3Schema", has_status)


def _validate_subresources(errors: FieldErrors, version: Document, path: str) -> None:
    scale = (version.get("subresources") or {}).get("scale")
    if scale is None:
        return
    for name, places in STATUS_PATHS.items():
        text, where = scale.get(name) or "", f"{path}.scale.{name}"
        if not text:
            errors.required(where)
        elif not text.startswith("."):
            errors.invalid(where, text, "must be a simple json path starting with .")
        elif not text.startswith(places):
            errors.invalid(where, text, f"should be a json path under {places[0].rstrip('.')}")

    text, where = scale.get("labelSelectorPath") or "", f"{path}.scale.labelSelectorPath"
    if text and not text.startswith("."):
        errors.invalid(where, text, "must be a simple json path starting with .")
    elif text and not text.startswith((".spec.", ".status.")):
        errors.invalid(where, text, "should be a json path under either .spec or .status")


def _validate_columns(errors: FieldErrors, version: Document, path: str) -> None:
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        where = f"{path}[{index}]"
        of_type, form = column.get("type") or "", column.get("format") or ""
        if not column.get("name"):
            errors.required(f"{where}.name")
        why = f"must be one of {','.join(COLUMN_TYPES)}"
        if not of_type:
            errors.required(f"{where}.type", why)
        elif of_type not in COLUMN_TYPES:
            errors.invalid(f"{where}.type", of_type, why)
        if form and form not in COLUMN_FORMATS:
            errors.invalid(f"{where}.format", form, f"must be one of {','.join(COLUMN_FORMATS)}")
        text = column.get("jsonPath") or ""
        if not text:
            errors.required(f"{where}.JSONPath")
        elif not text.startswith("."):
            errors.invalid(f"{where}.JSONPath", text, "must be a simple json path starting with .")


_PARTS = {
    "schema": _validate_schema,
    "subresources": _validate_subresources,
    "additionalPrinterColumns": _validate_columns,
}


def _validate_deprecation(errors: FieldErrors, version: Document, path: str) -> None:
    warning, where = version.get("deprecationWarning"), f"{path}.deprecationWarning"
    if warning is None:
        return
    if not version.get("deprecated"):
        errors.invalid(where, warning, "can only be set for deprecated versions")
        return
    if len(warning.encode()) > 256:
        errors.invalid(where, warning, "must be <= 256 characters long")
    if not warning:
        errors.invalid(where, warning, "must not be an empty string")
    for index, letter in enumerate(warning):
        if not letter.isprintable():
            why = "must only contain printable UTF-8 characters; non-printable character found at"
            errors.invalid(where, warning, f"{why} index {index}")
            break


def _validate_selectable(errors: FieldErrors, version: Document, path: str) -> None:
    selectable = version.get("selectableFields") or []
    root = structures.parse_structure(
        (version.get("schema") or {}).get("openAPIV3Schema") or {}, True
    )
    seen: set[str] = set()
    for index, entry in enumerate(selectable):
        text = entry.get("jsonPath") or ""
        where = f"{path}.selectableFields[{index}].jsonPath"
        if not text:
            errors.required(where)
            continue

        # Follow the path through the schema. A path into a list is not allowed.
        below: Structure | None = root
        for name in text.removeprefix(".").split("."):
            below = below.below(name) if below else None
        if below is None or "[" in text or not text.startswith("."):
            why = "is an invalid path: does not refer to a valid field"
            errors.invalid(where, text, why)
            continue

        # The field exists, so check whether it may be selected by.
        if text.startswith(".metadata"):
            errors.invalid(where, text, "must not point to fields in metadata")
        if below.type not in ("string", "boolean", "integer"):
            why = (
                "must point to a field of type string, boolean or integer. Enum string fields and "
                "strings with formats are allowed."
            )
            errors.invalid(where, text, why)
        if text in seen:
            errors.duplicate(where, text)
        seen.add(text)
    errors.too_many(f"{path}.selectableFields", len(seen), MAX_SELECTABLE)


def validate_names(errors: FieldErrors, names: Document, path: str) -> None:
    for name in ("plural", "singular"):
        problems = formats.dns1035_label(names.get(name) or "")
        if names.get(name) and problems:
            errors.invalid(f"{path}.{name}", names[name], ",".join(problems))

    # Kinds may have capital letters, so check them in lower case.
    for name in ("kind", "listKind"):
        problems = formats.dns1035_label((names.get(name) or "").lower())
        if names.get(name) and problems:
            why = f"may have mixed case, but should otherwise match: {','.join(problems)}"
            errors.invalid(f"{path}.{name}", names[name], why)

    for part in ("shortNames", "categories"):
        for index, word in enumerate(names.get(part) or ()):
            problems = formats.dns1035_label(word)
            if problems:
                errors.invalid(f"{path}.{part}[{index}]", word, ",".join(problems))

    if names.get("kind") and names.get("kind") == names.get("listKind"):
        why = "kind and listKind may not be the same"
        errors.invalid(f"{path}.listKind", names["listKind"], why)


def _validate_conversion(errors: FieldErrors, conversion: Document) -> None:
    strategy, path = conversion.get("strategy") or "", "spec.conversion"
    webhook = conversion.get("webhook") or {}
    if not strategy:
        errors.required(f"{path}.strategy")
    elif strategy not in ("None", "Webhook"):
        errors.not_supported(f"{path}.strategy", strategy, ("None", "Webhook"))

    if strategy != "Webhook":
        for name, field in (
            ("clientConfig", "webhookClientConfig"),
            ("conversionReviewVersions", "conversionReviewVersions"),
        ):
            if webhook.get(name):
                why = "should not be set when strategy is not set to Webhook"
                errors.forbidden(f"{path}.{field}", why)
        return

    # A webhook is never called, but its configuration must be valid.
    client = webhook.get("clientConfig")
    if client is None:
        why = "required when strategy is set to Webhook"
        errors.required(f"{path}.webhookClientConfig", why)
    elif (client.get("url") is None) == (client.get("service") is None):
        why = "exactly one of url or service is required"
        errors.required(f"{path}.webhookClientConfig", why)

    if not webhook.get("conversionReviewVersions"):
        errors.required(f"{path}.conversionReviewVersions")


def _validate_change(errors: FieldErrors, spec: Document, old: Document) -> None:
    before = old.get("spec") or {}
    names, names_before = spec.get("names") or {}, before.get("names") or {}
    fixed = [("spec.group", spec.get("group"), before.get("group"))]
    fixed.append(("spec.names.plural", names.get("plural"), names_before.get("plural")))
    if is_true(old, "Established"):
        fixed.insert(0, ("spec.names.kind", names.get("kind"), names_before.get("kind")))
        fixed.insert(0, ("spec.scope", spec.get("scope"), before.get("scope")))
    for path, now, then in fixed:
        if now != then:
            errors.invalid(path, now, "field is immutable")


def _validate_stored_versions(errors: FieldErrors, definition: Document) -> None:
    stored = (definition.get("status") or {}).get("storedVersions") or []
    path, names = "status.storedVersions", [each.get("name") for each in versions_of(definition)]
    if not stored:
        errors.invalid(path, None, "must have at least one stored version")
    for index, name in enumerate(stored):
        if name not in names:
            why = (
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions"
            )
            errors.invalid(f"{path}[{index}]", name, why)


def _validate_approval(errors: FieldErrors, definition: Document, old: Document | None) -> None:
    """Checks that a group of Kubernetes' own domain has an annotation about its approval."""
    group = (definition.get("spec") or {}).get("group") or ""
    if old is not None or not f".{group}".endswith(PROTECTED):
        return
    approval = (definition["metadata"].get("annotations") or {}).get(APPROVED) or ""
    path = f"metadata.annotations[{APPROVED}]"
    if not approval:
        why = (
            'protected groups must have approval annotation "api-approved.kubernetes.io", see '
            "https://github.com/kubernetes/enhancements/pull/1111"
        )
        errors.required(path, why)
    elif not approval.startswith(("http://", "https://", "unapproved")):
        why = (
            'protected groups must have approval annotation "api-approved.kubernetes.io" with '
            'either a URL or a reason starting with "unapproved", see '
            "https://github.com/kubernetes/enhancements/pull/1111"
        )
        errors.invalid(path, approval, why)


def warnings(definition: Document) -> list[str]:
    """Returns a warning for each feature of the definition that is not simulated."""
    strategy = ((definition.get("spec") or {}).get("conversion") or {}).get("strategy")
    if strategy != "Webhook":
        return []
    return [
        "not simulated: spec.conversion: no webhook is asked, and versions differ by their "
        "apiVersion alone"
    ]


def is_true(definition: Document, condition: str) -> bool:
    for each in (definition.get("status") or {}).get("conditions") or ():
        if each["type"] == condition:
            return bool(each["status"] == "True")
    return False


# ---------------------------------------------------------------- the kind of a definition


def api_resources(definition: Document) -> dict[str, ApiResource]:
    """Returns an API resource for each served version of a definition with accepted names."""
    spec, names = definition["spec"], definition["spec"]["names"]
    stored = kind_of(definition)
    served = [version for version in spec["versions"] if version.get("served")]
    served_names = sorted((each["name"] for each in served), key=kinds.priority, reverse=True)

    # Each version has its own columns, subresources and deprecation, so it is a resource of its
    # own.
    made: dict[str, ApiResource] = {}
    for version in served:
        made[version["name"]] = ApiResource(
            replace(stored, has_status=_has_status(version)),
            tuple(served_names),
            names["singular"],
            tuple(names.get("shortNames") or ()),
            verbs=kinds.CUSTOM_VERBS,
            group=spec["group"],
            subresources=("scale",) if version["name"] in stored.scales else (),
            categories=tuple(names.get("categories") or ()),
            list_kind=names["listKind"],
            columns=tuple(version.get("additionalPrinterColumns") or ()),
            selectable=_selectable(version),
            warning=_deprecation(version, stored.resource),
            is_ending=is_true(definition, "Terminating"),
            revision=f"{definition['metadata']['uid']}/{definition['metadata']['generation']}",
        )
    return made


def kind_of(definition: Document) -> Kind:
    """Returns the kind of the objects of this definition, as they are stored."""
    spec, names = definition["spec"], definition["spec"]["names"]
    trees: dict[str, Structure] = {}
    scales: dict[str, Document] = {}
    has_status = False
    for version in spec["versions"]:
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        trees[version["name"]] = structures.parse_structure(schema, is_object=True)
        scale = (version.get("subresources") or {}).get("scale")
        if scale:
            scales[version["name"]] = scale
        # The storage version decides whether the stored kind has a status subresource.
        if version.get("storage"):
            has_status = _has_status(version)

    return Kind(
        GroupResource(names["plural"], spec["group"], names["kind"]),
        storage_version(definition),
        namespaced=spec["scope"] == "Namespaced",
        has_status=has_status,
        has_generation=True,
        structures=trees,
        is_custom=True,
        scales=scales,
    )


def _has_status(version: Document) -> bool:
    return (version.get("subresources") or {}).get("status") is not None


def _selectable(version: Document) -> tuple[str, ...]:
    entries = version.get("selectableFields") or ()
    return tuple(entry["jsonPath"].removeprefix(".") for entry in entries)


def _deprecation(version: Document, resource: GroupResource) -> str:
    if not version.get("deprecated"):
        return ""
    said = version.get("deprecationWarning")
    return said or f"{resource.group}/{version['name']} {resource.kind} is deprecated"
