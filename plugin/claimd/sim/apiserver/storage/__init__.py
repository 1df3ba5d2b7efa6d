"""The stored objects: the store, the registry in front of it, and what follows from a write."""
