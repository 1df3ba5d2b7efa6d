"""Kubernetes objects as typed structs, every version of the resource API that we speak, and text to
data and back.

One internal shape, that of v1; `versions` turns older wire forms into it and back. No I/O.
"""
