"""Custom resources: checks of their definitions, and of objects against the schemas."""
