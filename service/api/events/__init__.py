"""Events of jobs: server-sent streams, and deliveries of webhooks."""
