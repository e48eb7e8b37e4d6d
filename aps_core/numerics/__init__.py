"""Numerical solvers, and the protocols of likelihoods."""
