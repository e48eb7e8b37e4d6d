"""Training of the embedded priors: one resumable command per stage, on a GPU or CPU."""
