"""What the samplers share: schedule, anchors, inner loop, random draws."""
