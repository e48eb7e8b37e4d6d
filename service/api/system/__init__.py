"""What the service offers, its health, and sign-in of browsers."""
