"""Outgoing requests to URLs supplied by clients; only public addresses are reachable."""
