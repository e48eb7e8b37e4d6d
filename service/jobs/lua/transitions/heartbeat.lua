-- ARGV: id, fence, lease ; renews the lease; returns an instruction to the worker
if not holds(ARGV[2]) then return 'lost' end
extend(ARGV[3])
return word()
