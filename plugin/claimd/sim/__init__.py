"""A small control plane in one process, for demos and tests, that behaves as a real one as far as
known.

Objects are plain data and never changed after they are stored; a change makes a copy. Code that
runs on a real node does not import this package.
"""
