"""Kubernetes objects as typed structs, and the versions of the resource API that claimd supports.

Inside claimd all objects have the shape of v1. `versions` converts the wire forms of older versions
to it and back. This package does no I/O.
"""
