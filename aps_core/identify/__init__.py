"""Identification of an unknown degradation: what happened to a picture, and how strongly.

``diagnosis/`` looks at the picture and says in words what it finds, without torch. ``blind/``
measures a blur. ``kinds/`` holds the operators of requests that mean "unknown". They register with
the forward models, but cannot degrade a picture.
"""
