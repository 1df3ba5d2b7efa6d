"""The complete objects of the resource API, in every version, for people and tools.

There is one module per API version and one class per type. The fields of a class are the schema.
Parsing, checking, merging, building and converting derive from it. `claimd run` never imports this
package, to save memory. It uses `claimd.kubernetes.api.resource`.
"""
