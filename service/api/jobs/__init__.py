"""Jobs: submission, estimates, and the routes that follow them."""
