"""Restoration: decisions (``plan.py``), computation (``run.py``), result (``result.py``).

The library and the jobs of the service both make a plan and run it.
"""
