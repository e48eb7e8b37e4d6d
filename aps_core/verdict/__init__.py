"""Verdict on the agreement of a restoration with its measurement."""
