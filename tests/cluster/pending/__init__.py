"""Pods that wait, as the real scheduler sees them: what it says is recorded, and what claimd says
about the same objects is held against it.
"""
