-- Who is there: every host says so now and then, and is forgotten when it has not for a while.
-- Arguments: the host, and how many microseconds that is.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[2] / 1000))
return { time[1], time[2], redis.call('ZCARD', KEYS[1]) }
