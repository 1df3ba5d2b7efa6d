"""What each kind allows beyond what all kinds have in common: defaults, fields that stay out, and
what is refused.

A `Strategy` for each kind (in `strategy`) puts together what the other modules know. The texts are
those of the real servers, since people and programs read them. Pure: time and what else there is in
the store are given.
"""
