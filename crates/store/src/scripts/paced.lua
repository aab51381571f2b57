-- Numbers of up to 63 bits are pairs: 10^9 times the first, plus the second.

-- Nanoseconds in a bucket's own units: (nanoseconds << shift) * factor >> 63. Arguments: 2^shift, and the factor in limbs.
local function units(hi, lo, at)
  local high = math.floor(hi / LIMB)
  local sum = (hi - high * LIMB) * 1e9 + lo
  local n0 = sum % LIMB
  sum = (sum - n0) / LIMB + high * 1e9
  local n1 = sum % LIMB
  local n2 = (sum - n1) / LIMB
  local scale = tonumber(ARGV[at])
  if scale > 1 then
    sum = n0 * scale
    n0 = sum % LIMB
    sum = (sum - n0) / LIMB + n1 * scale
    n1 = sum % LIMB
    -- What is above 63 bits goes round.
    n2 = ((sum - n1) / LIMB + n2 * scale) % LIMB
  end
  local p5, p4, p3 = product(n2, n1, n0, tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]))
  local top = p5 * LIMB + p4
  local rest = top % 1e9
  local low = rest * LIMB + p3
  local unit_lo = low % 1e9
  return (top - rest) / 1e9 * LIMB + (low - unit_lo) / 1e9, unit_lo
end

-- A bucket whose tokens do not take whole microseconds. The value is when it is full again, in units of which a token takes a
-- whole number. Invariant: as of the other one.
-- Arguments: those of `units`; units per millisecond; how long the request may be held back, what may be missing then, the
-- price, and what an empty bucket lacks, as pairs; and the first part of what is further ahead than anything can be.

-- When it is full again: what is kept, but not before now.
local function full_again(key, held, clock_hi, clock_lo, at)
  if not held then return clock_hi, clock_lo end
  local hi, lo = tonumber(string.sub(held, 1, -10)), tonumber(string.sub(held, -9))
  if hi - clock_hi > tonumber(ARGV[at + 13]) then
    hi, lo = clock_hi + ARGV[at + 11], clock_lo + ARGV[at + 12]
    if lo >= 1e9 then hi, lo = hi + 1, lo - 1e9 end
    redis.call('SET', key, string.format('%d%09d', hi, lo), 'KEEPTTL')
  elseif hi < clock_hi or hi == clock_hi and lo < clock_lo then
    return clock_hi, clock_lo
  end
  return hi, lo
end

-- How long a bucket is kept that is full again in so many units.
local function life_of(units, at) return math.ceil(units / ARGV[at + 4]) + 1 end

local function paced(key, held, at)
  local now_hi, now_lo = tonumber(time[1]), time[2] * 1000
  local clock_hi, clock_lo = units(now_hi, now_lo, at)
  local last_hi, last_lo = clock_hi, clock_lo
  local wait_hi, wait_lo = now_hi + ARGV[at + 5], now_lo + ARGV[at + 6]
  if wait_lo >= 1e9 then wait_hi, wait_lo = wait_hi + 1, wait_lo - 1e9 end
  if wait_hi ~= now_hi or wait_lo ~= now_lo then last_hi, last_lo = units(wait_hi, wait_lo, at) end
  last_hi, last_lo = last_hi + ARGV[at + 7], last_lo + ARGV[at + 8]
  if last_lo >= 1e9 then last_hi, last_lo = last_hi + 1, last_lo - 1e9 end
  local hi, lo = full_again(key, held, clock_hi, clock_lo, at)
  if hi > last_hi or hi == last_hi and lo > last_lo then return at + 14, false end
  hi, lo = hi + ARGV[at + 9], lo + ARGV[at + 10]
  if lo >= 1e9 then hi, lo = hi + 1, lo - 1e9 end
  local life = life_of((hi - clock_hi) * 1e9 + lo - clock_lo, at)
  return at + 14, true, string.format('%d%09d', hi, lo), life
end

