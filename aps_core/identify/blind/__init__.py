"""Blind deblurring: the blur's parameters by expectation-maximisation over posterior samples.

``em.py`` is the algorithm, ``families.py`` the blurs, ``likelihood.py`` what the M step maximises,
``photograph.py`` the E step on a photograph.
"""
