-- A sliding log as it is usually written for Redis. ARGV: limit, period in seconds.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local limit, period = tonumber(ARGV[1]), ARGV[2] * 1000000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - period)
local used = redis.call('ZCARD', KEYS[1])
if used >= limit then return {1, 0} end
redis.call('ZADD', KEYS[1], now, now)
redis.call('PEXPIRE', KEYS[1], period / 1000)
return {0, limit - used - 1}
