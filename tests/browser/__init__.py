"""The page of `claimd view` in a real browser."""
