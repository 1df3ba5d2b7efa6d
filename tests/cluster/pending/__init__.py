"""Pods that wait: records what the real scheduler says about them.

Tests compare claimd's answers about the same objects with these recordings.
"""
