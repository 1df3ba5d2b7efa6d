"""The simulated API server: stores objects, and serves the operations on them over HTTP.

It knows nothing about scheduling, nodes or containers. The components for these are its clients, as
in a real cluster.
"""
