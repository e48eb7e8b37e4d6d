-- ARGV: id, fence, lease ; returns what the worker shall do
if not holds(ARGV[2]) then return 'lost' end
extend(ARGV[3])
return word()
