"""The HTTP endpoint of a node for probes and metrics, optionally over TLS."""
