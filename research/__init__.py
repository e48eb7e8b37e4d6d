"""Studies beside the product: what they asked, and what they decided. Nothing depends on them."""
