"""Objects of other libraries as this library's own."""
