"""Objects as they are stored: the store, the registry in front of it, what follows from a write."""
