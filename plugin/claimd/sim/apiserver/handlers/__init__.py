"""The handlers of requests: objects, watches, subresources, reviews, discovery and OpenAPI."""
