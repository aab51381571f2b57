-- Forgets states: every limit of a client's, however it is counted.
return redis.call('DEL', unpack(KEYS))
