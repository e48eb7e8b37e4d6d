-- ARGV: id, terms ; returns a fence or the reason for refusal
return claim(claim_terms())
