"""Pictures from clients: fetched, decoded in child processes, stored."""
