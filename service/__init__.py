"""The HTTP service and the job protocol it shares with the workers."""
