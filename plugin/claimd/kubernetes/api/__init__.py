"""Kubernetes objects as typed structs, and the versions of the resource API that we speak.

One internal shape, that of v1; `versions` turns older wire forms into it and back. No I/O.
"""
