"""The resource API's objects whole, in every version, for people and tools: read, checked, merged,
built, converted.

A module a version holds one class a type; a class is its own field table, and all the rest follows
from it. A running `claimd run` never imports this package: its memory is dear, and
`plugin.api.resource` has what it needs.
"""
