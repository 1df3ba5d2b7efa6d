"""Between bytes and values: HTTP, bodies in JSON, YAML and protobuf, query parameters, and answers
as clients want them.
"""
