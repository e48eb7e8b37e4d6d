"""Processes on one machine: embedded server, API and workers under a supervisor."""
