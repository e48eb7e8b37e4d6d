"""Identification of an unknown degradation: what happened to a picture and how strongly.

``diagnosis/`` describes the degradations of a picture in plain words, without torch. ``blind/``
estimates a blur. ``kinds/`` holds the operators of requests that mean "unknown". They register with
the forward models but cannot degrade a picture.
"""
