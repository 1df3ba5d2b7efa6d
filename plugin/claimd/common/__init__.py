"""The foundation of all parts: errors, logs, metrics, names, durable files, pacing, HTTP.

This package knows neither Kubernetes nor GPUs. A module belongs here when two wings need it;
otherwise it belongs to the wing that needs it. It may import the standard library and h11, never
another wing.
"""
