-- ARGV: id, seconds ; true when a queued job was last announced at least this long ago; it then counts as announced
if get('state') ~= 'queued' or now - tonumber(get('announced_at')) < tonumber(ARGV[2]) then return 0 end
set('announced_at', text(now))
return 1
