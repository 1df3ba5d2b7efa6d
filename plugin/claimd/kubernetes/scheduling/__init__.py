"""The scheduler's rules about pods and nodes, devices aside. Pure: no I/O and no clock.

The simulated scheduler decides by these rules, and `claimd explain` reports what they say. Start
with `node_rules`, which applies all of them to one node. The choice of devices for a claim belongs
to `allocator`.
"""
