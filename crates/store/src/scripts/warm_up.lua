-- Permits in store, and when the next request may go ahead in nanoseconds: "stored:next". Invariant: the same operations
-- on doubles in the same order as in the library, so that both round alike.
-- Arguments: how long the request may be held back, as a pair (none fits if it is below zero), what is further ahead than
-- can be, in seconds; cost, interval, slope, threshold, most, and nanoseconds to warm up.
local function warm_up(key, held, at)
  local now_hi, now_lo = tonumber(time[1]), time[2] * 1000
  local wait_hi, wait_lo = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local cost, interval, slope = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  local threshold, most, period = tonumber(ARGV[at + 6]), tonumber(ARGV[at + 7]), tonumber(ARGV[at + 8])
  local stored, hi, lo = most, now_hi, now_lo
  if held then
    local held_stored, next = string.match(held, '^(.+):(%d+)$')
    local next_hi, next_lo = tonumber(string.sub(next, 1, -10)), tonumber(string.sub(next, -9))
    local idle = (now_hi - next_hi) * 1e9 + (now_lo - next_lo)
    stored = math.min(held_stored + math.max(idle, 0) * most / period, most)
    if next_hi - now_hi > tonumber(ARGV[at + 2]) then
      stored = 0
      redis.call('SET', key, string.format('0:%d%09d', hi, lo), 'KEEPTTL')
    elseif idle < 0 then
      hi, lo = next_hi, next_lo
    end
  end
  local last_hi, last_lo = now_hi + wait_hi, now_lo + wait_lo
  if last_lo >= 1e9 then last_hi, last_lo = last_hi + 1, last_lo - 1e9 end
  if hi > last_hi or hi == last_hi and lo > last_lo then return at + 9, false end
  local above = math.max(stored - threshold, 0)
  local cold = math.min(above, cost)
  local price = math.floor(
    cold * ((interval + above * slope) + (interval + (above - cold) * slope)) / 2 + (cost - cold) * interval)
  local price_lo = math.fmod(price, 1e9)
  hi, lo = hi + (price - price_lo) / 1e9, lo + price_lo
  if lo >= 1e9 then hi, lo = hi + 1, lo - 1e9 end
  local millis = math.ceil(((hi - now_hi) * 1e9 + lo - now_lo + period) / 1e6) + 1
  local value = string.format('%.17g:%d%09d', math.max(stored - cost, 0), hi, lo)
  return at + 9, true, value, millis
end

