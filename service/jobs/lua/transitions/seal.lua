-- ARGV: id of a job ; its batch is complete: the last of its jobs to end reports it, or this one if all have ended
leave_batch('request')
