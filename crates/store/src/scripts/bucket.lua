-- A bucket: the moment at which it is full again, as a decimal number, which takes the least memory there is.
-- Invariant: it is never moved back, and moved ahead only by the price of a request that fitted.
--
-- The request fits if the moment is no later than `last`. Arguments: price, and what an empty bucket lacks, as pairs;
-- what is further ahead than the first part of the last argument was written before the clock jumped.
local function pour(key, clock_hi, clock_lo, last_hi, last_lo, per_milli, at)
  local held = redis.call('GET', key)
  local hi, lo = clock_hi, clock_lo
  if held then
    local held_hi, held_lo = tonumber(string.sub(held, 1, -10)), tonumber(string.sub(held, -9))
    if held_hi - clock_hi > tonumber(ARGV[at + 4]) then
      hi, lo = hi + ARGV[at + 2], lo + ARGV[at + 3]
      if lo >= 1e9 then hi, lo = hi + 1, lo - 1e9 end
      redis.call('SET', key, string.format('%d%09d', hi, lo), 'KEEPTTL')
    elseif held_hi > hi or held_hi == hi and held_lo > lo then
      hi, lo = held_hi, held_lo
    end
  end
  if hi > last_hi or hi == last_hi and lo > last_lo then return false, held end
  hi, lo = hi + ARGV[at], lo + ARGV[at + 1]
  if lo >= 1e9 then hi, lo = hi + 1, lo - 1e9 end
  local millis = math.ceil(((hi - clock_hi) * 1e9 + lo - clock_lo) / per_milli) + 1
  return true, held, string.format('%d%09d', hi, lo), millis
end

-- A bucket whose tokens take whole nanoseconds: nearly all. Arguments: what may be missing, as a pair, and pour's.
local function bucket(key, at)
  local hi, lo = now_hi + ARGV[at], now_lo + ARGV[at + 1]
  if lo >= 1e9 then hi, lo = hi + 1, lo - 1e9 end
  return at + 7, pour(key, now_hi, now_lo, hi, lo, 1e6, at + 2)
end

