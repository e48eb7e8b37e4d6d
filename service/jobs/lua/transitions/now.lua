-- the store's clock
return text(now)
