"""Batches: many restorations in one request."""
