"""The scheduler's rules about pods and nodes, except those about devices.

The package is pure: it does no I/O and has no clock. The simulated scheduler decides by these
rules, and `claimd explain` reports their results. Start with `node_rules`, which applies all of
them to one node. The choice of devices for a claim belongs to `allocator`.
"""
