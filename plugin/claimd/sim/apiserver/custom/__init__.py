"""Custom resources: what a definition has to be, and what its schema says of objects."""
