"""Pictures as files and tensors: reading, resizing, noise, blending, provenance."""
