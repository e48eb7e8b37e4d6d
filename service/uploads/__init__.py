"""Pictures from clients: fetches, decodes in child processes, and stores them."""
