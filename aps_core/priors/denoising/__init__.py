"""A denoiser of white noise of known level, used as a prior; shared code without a spec."""
