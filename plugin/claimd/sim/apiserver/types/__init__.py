"""The value types of the API server that all its parts share.

They know no storage, no HTTP, and no rules of single kinds.
"""
