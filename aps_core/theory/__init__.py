"""Enumerable worlds with an exact posterior, and bounds on what a prior can gain."""
