"""The command line ``aps``: the same specs as the service, on this machine or through a server."""
