-- ARGV: id, terms ; returns a fence or why not
return claim(claim_terms())
