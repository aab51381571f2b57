-- The time is the store's own, so that hosts whose clocks are wrong agree: microseconds since the epoch, which a double
-- holds exactly for another two centuries.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

