"""Training of the two networks of :mod:`aps_core.identify.diagnosis`: blur and content."""
