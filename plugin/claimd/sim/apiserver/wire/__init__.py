"""The layer between bytes and values: JSON, YAML, protobuf, query parameters and responses."""
