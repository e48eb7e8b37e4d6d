"""Objectives of the inner optimisation: agreement with a measurement or a style."""
