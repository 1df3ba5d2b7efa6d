"""The stored objects: the store, the registry in front of it, and the effects of a write."""
