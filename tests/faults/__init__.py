"""Campaigns: claimd dies, its disk fails, the machine loses power, at every step. `python -m
tests.faults --help`.
"""
