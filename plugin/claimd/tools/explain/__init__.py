"""`claimd explain`: why a pod or a claim gets no devices.

Start with `pending.report`, which answers a question about one pod or claim. `sources` reads the
cluster's objects, `question` tries the pod on each node, and `text` prints the answer.
"""
