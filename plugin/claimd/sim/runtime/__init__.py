"""The simulated container runtime: reads CDI specs as containerd does, and runs real processes.

Images are only names: commands run from the host. The runtime knows nothing about pods, claims or
the API server.
"""
