"""Outgoing requests to addresses that clients name: public addresses only."""
