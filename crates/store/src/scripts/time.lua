-- The time is the store's own, so that hosts whose clocks are wrong agree.
--
-- A number in Lua is a double and exact up to 2^53. Nanoseconds since the epoch are more than that, so they and every
-- other number of up to 63 bits are pairs: 10^9 times the first, plus the second.
local time = redis.call('TIME')
local now_hi, now_lo = tonumber(time[1]), time[2] * 1000
local micros = now_hi * 1000000 + time[2]

