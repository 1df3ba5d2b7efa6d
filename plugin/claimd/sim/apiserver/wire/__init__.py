"""Between bytes and values: HTTP, JSON, YAML and protobuf, query parameters, responses."""
