"""Reports for people: claim statuses, Events, the health of GPUs, and competing drivers."""
