-- ARGV: id, fence, phase
if not holds(ARGV[2]) then return 0 end
move('running', ARGV[3])
return 1
