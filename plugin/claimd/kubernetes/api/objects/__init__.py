"""The complete objects of the resource API, in every version, for people and tools.

There is one module per API version and one class per type. The fields of a class are the schema.
Parsing, checking, merging, building and converting derive from it. `claimd run` never imports this
package, to save memory. It uses `claimd.kubernetes.api.resource`.

The modules in `__all__` are for programs of others, too: docs/python.md shows them.
"""

__all__ = [
    "v1",
    "v1beta2",
    "v1beta1",
    "v1alpha3",
    "v1alpha3_31",
    "v1alpha2",
    "models",
    "convert",
    "foreign",
    "plain",
]
