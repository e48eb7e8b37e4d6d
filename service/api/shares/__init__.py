"""Links to results."""
