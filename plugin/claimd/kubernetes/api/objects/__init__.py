"""The resource API's objects whole, in every version, for people and tools.

They are read, checked, merged, built and converted here. A module a version holds one class a type;
a class is its own field table, and all the rest follows from it. A running `claimd run` never
imports this package: its memory is dear, and `claimd.kubernetes.api.resource` has what it needs.
"""
