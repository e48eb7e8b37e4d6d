"""The HTTP interface: routes, views, headers, problems."""
