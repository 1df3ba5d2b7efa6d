"""Many nodes of ours against one API server: `python -m tests.scale --help`, or `make scale`."""
