"""Processes of one machine: embedded server, supervisor, devices."""
