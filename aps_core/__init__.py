"""Anchored posterior sampling (APS) with discrete diffusion priors: the library."""

import os

__version__ = "0.1.0"

# Before torch loads, and only where nothing else is asked for: threads that spin at every barrier
# make a run many times slower as soon as anything else wants a core; on an idle machine waiting
# without spinning costs about a tenth.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
