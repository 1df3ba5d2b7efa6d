"""Who answers a request: objects, watches, subresources, reviews, discovery, OpenAPI."""
