"""The HTTP endpoint of a node: probes and metrics, over TLS where it has a certificate."""
