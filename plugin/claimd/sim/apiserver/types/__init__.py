"""Values that every part of the API server speaks of. No storage, no HTTP, no rules of a kind."""
