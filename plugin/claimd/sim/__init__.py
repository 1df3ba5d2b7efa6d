"""A small control plane in one process, for demos and tests, which imitates a real one.

Objects are plain data and never changed after they are stored; a change makes a copy. Code that
runs on a real node does not import this package.
"""
