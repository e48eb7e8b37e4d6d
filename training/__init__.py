"""Training of the embedded priors: one resumable command per stage, GPU or CPU."""
