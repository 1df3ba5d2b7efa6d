"""What each kind has beyond what all kinds have in common: defaults, dropped fields, validation.

A `Strategy` for each kind (in `strategy`) puts together what the other modules know. Messages are
those of the real servers, since people and programs read them. Pure: time and what else there is in
the store are given.
"""
