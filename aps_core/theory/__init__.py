"""Enumerable problems with an exact posterior, and the paper's bounds."""
