"""The container runtime's part: CDI specs read as containerd reads them, and containers that are
real processes.

An image is a name and nothing more: commands run from the host. Nothing here knows pods, claims or
the API server.
"""
