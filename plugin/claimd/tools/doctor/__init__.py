"""`claimd doctor`: reports the faults of a node, or of a cluster, that keep pods from their GPUs.

Each group of checks is a module with two halves. `look` reads files, sockets and the API server and
returns facts. `judge` is pure and turns the facts into findings. `examine` runs all groups. The
doctor never changes anything. If a fact cannot be seen from here, the finding says so, and is
neither good nor bad.
"""
