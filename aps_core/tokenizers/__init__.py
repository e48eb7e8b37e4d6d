"""Image tokenizers: networks and quantizers."""
