"""A small convolutional prior that also hears uncertain tokens; shared code without a spec."""
