"""Parsing, validation and limits of requests, independent of the resource."""
