"""Text: sampling with a masked language model, and rewards that guide it."""
