"""`claimd explain`: why a pod or a claim gets no devices."""
