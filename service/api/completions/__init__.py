"""Text jobs in OpenAI's format."""
