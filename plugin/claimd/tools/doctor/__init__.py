"""`claimd doctor`: what stands between this node, or this cluster, and GPUs that work.

Each group of checks has two halves: what looks (files, sockets, the API server) gives facts, and
pure functions say of the facts what is well and what is not. Nothing is ever changed. What cannot
be seen is told as such: it is neither well nor broken.
"""
