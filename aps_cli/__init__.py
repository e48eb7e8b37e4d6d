"""The command line ``aps``: runs the service's specs locally or on a remote service."""
