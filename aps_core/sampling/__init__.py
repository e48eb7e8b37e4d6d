"""Code shared by the samplers: schedule, anchors, inner loop, random numbers."""
