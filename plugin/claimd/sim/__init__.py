"""A small control plane in one process, for demos and tests: what a real one does, as far as
anybody here can tell.

Objects are plain data and never changed once stored: who wants another one makes a copy. Nothing
that runs on a real node imports this package.
"""
