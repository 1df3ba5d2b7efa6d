"""Objects as they are kept: the store and its changes, the registry in front of it, and what
follows from a write.
"""
