"""Who may call: API keys, browser sessions, host checks."""
