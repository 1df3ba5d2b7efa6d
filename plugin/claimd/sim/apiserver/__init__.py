"""The simulated API server: objects and what may be done with them, over HTTP.

It knows nothing of scheduling, nodes or containers; those are its clients, as in a real cluster.
"""
