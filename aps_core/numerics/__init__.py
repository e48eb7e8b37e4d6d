"""Solvers and likelihoods that know nothing of pictures."""
