-- GCRA as it is usually written for Redis. ARGV: burst above the first, count, period in seconds.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval = ARGV[3] * 1000000 / ARGV[2]
local limit = ARGV[1] + 1
local tolerance = interval * limit
local arrival = math.max(tonumber(redis.call('GET', KEYS[1])) or now, now)
local owed = arrival + interval - now
if owed > tolerance then
  local left = math.floor((tolerance - owed + interval) / interval)
  return {1, limit, left, math.ceil((owed - tolerance) / 1000000), math.ceil((arrival - now) / 1000000)}
end
redis.call('SET', KEYS[1], string.format('%.0f', now + owed), 'PX', math.ceil(owed / 1000))
return {0, limit, math.floor((tolerance - owed) / interval), -1, math.ceil(owed / 1000000)}
