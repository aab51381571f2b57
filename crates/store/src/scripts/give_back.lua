-- Gives back what was taken and not used: states move back by it, and never beyond that in which nothing is missing.
--
-- The first argument is when it was taken, in microseconds, or below zero how many of them ago. What came in since then may be
-- what others have taken meanwhile, and is not given back; nor is anything of a window that has ended.
-- Keys and the other arguments are those of a request that takes as much. What the limits have to say does not matter. Logs
-- and warm-ups are left alone: nobody knows which of their requests it was, or how warm it would be without.
-- The answer: the time, and for every key what was kept there and what is now.
local since = tonumber(ARGV[1])
if since <= 0 then since = now + since elseif since > now then since = now end

local function bucket_back(_, held, at)
  local price, fill = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local full_at = tonumber(held)
  -- As when it is taken from.
  if full_at - now > 3601000000 + 11 * fill then full_at = now + fill end
  full_at = full_at - math.max(0, price - (now - since))
  if full_at <= now then return end
  local _, life = step_of(full_at, ARGV[at + 3] + 0)
  return string.format('%d', full_at), math.floor(life)
end

-- The difference of two pairs.
local function less(hi, lo, by_hi, by_lo)
  hi, lo = hi - by_hi, lo - by_lo
  if lo < 0 then return hi - 1, lo + 1e9 end
  return hi, lo
end

local function paced_back(key, held, at)
  local clock_hi, clock_lo = units(tonumber(time[1]), time[2] * 1000, at)
  local price_hi, price_lo = ARGV[at + 9], ARGV[at + 10]
  if since < now then
    local passed_hi, passed_lo = less(clock_hi, clock_lo, units(math.floor(since / 1e6), since % 1e6 * 1000, at))
    price_hi, price_lo = less(price_hi, price_lo, passed_hi, passed_lo)
    if price_hi < 0 then price_hi, price_lo = 0, 0 end
  end
  local hi, lo = full_again(key, held, clock_hi, clock_lo, at)
  hi, lo = less(hi, lo, price_hi, price_lo)
  if hi < clock_hi or hi == clock_hi and lo <= clock_lo then return end
  return string.format('%d%09d', hi, lo), life_of((hi - clock_hi) * 1e9 + lo - clock_lo, at)
end

local function count_back(key, held, at, taken_in, number, left, period)
  local cost, limit, most = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 3])
  local digits = #ARGV[at + 1]
  local used = used_of(key, held, number, limit, most, digits) - (taken_in == number and cost or 0)
  if used <= 0 then return end
  return written(number, used, limit, digits), math.ceil((left + later_by(used, limit) * period) / 1000) + 1
end

local function window_back(key, held, at)
  local taken_in = window_at(since, at)
  return count_back(key, held, at + 2, taken_in, window_at(now, at))
end

local function months_back(key, held, at)
  local taken_in = month_at(since, at)
  return count_back(key, held, at + 2, taken_in, month_at(now, at))
end

local function sliding_back(key, held, at)
  local period, cost, limit = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local number, into, current, previous = slid(key, held, period, limit)
  -- A key for which the clock stands still was taken from in that window.
  if math.floor(since / period) == math.floor(now / period) then current = math.max(0, current - cost) end
  if current == 0 and previous == 0 then return end
  local windows = current > 0 and 2 or 1
  return string.format('%d:%d:%d', number, current, previous), math.ceil((windows * period - into) / 1000) + 1
end

local kinds = { b = bucket_back, p = paced_back, w = window_back, m = months_back, s = sliding_back }
local words = { b = 4, p = 14, w = 6, m = 6, s = 3, l = 6, u = 9 }
local held = redis.call('MGET', unpack(KEYS))
local reply = { time[1], time[2] }
local at = 2
for i = 1, #KEYS do
  local kind = ARGV[at]
  local value, life = held[i], nil
  if value and kinds[kind] then
    value, life = kinds[kind](KEYS[i], value, at + 2)
    if value then redis.call('SET', KEYS[i], value, 'PX', life) else redis.call('DEL', KEYS[i]) end
  end
  reply[1 + 2 * i], reply[2 + 2 * i] = held[i], value or false
  at = at + 2 + words[kind]
end
return reply
