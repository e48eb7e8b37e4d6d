"""Training of the blur estimator of :mod:`aps_core.identify.diagnosis`."""
