"""Errors of the API, and the problem documents that report them."""
