"""What the inner optimisation minimises: agreement with a measurement (more kinds plug in here)."""
