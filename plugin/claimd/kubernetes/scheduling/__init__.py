"""What the scheduler asks of pods and nodes, devices aside. Pure: no I/O and no clock.

The simulated scheduler decides by it, and `claimd explain` tells of it. Which devices a claim gets
is for `allocator`.
"""
