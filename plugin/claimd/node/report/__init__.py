"""Reports to people: claim statuses, Events, the health of GPUs, and drivers that compete with us."""
