"""Prepares and unprepares claims for the kubelet.

A claim is planned, kept as a checkpoint, and handed to the container runtime as a CDI spec. Start
reading in `driver`, which follows one claim; `plan` is the decision.
"""
