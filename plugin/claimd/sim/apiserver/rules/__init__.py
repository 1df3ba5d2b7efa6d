"""The rules of single kinds: defaults, fields behind feature gates, and validation.

The `Strategy` of a kind (see `strategy`) combines the functions of the other modules. The messages
are those of real servers, because people and programs read them. All functions are pure: the time
and the other objects that they need are parameters.
"""
