-- ARGV: id, seconds ; true when the job has waited this long since it was last rung for
if get('state') ~= 'queued' or now - tonumber(get('rung_at')) < tonumber(ARGV[2]) then return 0 end
set('rung_at', text(now))
return 1
