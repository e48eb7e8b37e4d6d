"""Blind estimation of a picture's blur.

Parametric blurs (``families.py``): expectation-maximisation (``em.py``) of a likelihood
(``likelihood.py``) on the most detailed part of a picture (``photograph.py``), and refinement of a
diagnosed movement (``refine.py``, ``movement.py``). Kernels of any shape: ``kernel_search.py``,
with candidates from ``edge_prediction.py`` and evidence from ``sparse_gradients.py``.
"""
