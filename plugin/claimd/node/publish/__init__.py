"""Publishes the inventory as ResourceSlices, which the scheduler reads, and keeps them current."""
