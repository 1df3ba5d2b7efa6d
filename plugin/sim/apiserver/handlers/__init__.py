"""Who answers a request, by what it is about: objects, watches, subresources, reviews, discovery."""
