"""Adapters for objects of other libraries."""
