"""A small convolutional prior over pixels, which is also a denoiser; shared code without a spec."""
