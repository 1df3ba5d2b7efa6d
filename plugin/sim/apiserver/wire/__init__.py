"""Between bytes and values: HTTP, bodies in JSON, YAML and protobuf, query parameters, responses."""
