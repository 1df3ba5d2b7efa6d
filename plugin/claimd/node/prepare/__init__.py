"""Prepares and unprepares claims for the kubelet.

A claim is planned, written to a checkpoint, and passed to the container runtime as a CDI spec.
Start reading in `driver`, which handles one claim; `plan` makes the decision.
"""
