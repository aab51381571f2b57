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

-- A bucket whose tokens do not take whole nanoseconds. Invariant: as above; moments are units, of which a token takes a
-- whole number. Arguments: units', units per millisecond, how long the request may be held back and what may be
-- missing then, as pairs, and pour's.
local function paced(key, at)
  local clock_hi, clock_lo = units(now_hi, now_lo, at)
  local last_hi, last_lo = clock_hi, clock_lo
  local wait_hi, wait_lo = now_hi + ARGV[at + 5], now_lo + ARGV[at + 6]
  if wait_lo >= 1e9 then wait_hi, wait_lo = wait_hi + 1, wait_lo - 1e9 end
  if wait_hi ~= now_hi or wait_lo ~= now_lo then last_hi, last_lo = units(wait_hi, wait_lo, at) end
  last_hi, last_lo = last_hi + ARGV[at + 7], last_lo + ARGV[at + 8]
  if last_lo >= 1e9 then last_hi, last_lo = last_hi + 1, last_lo - 1e9 end
  return at + 14, pour(key, clock_hi, clock_lo, last_hi, last_lo, tonumber(ARGV[at + 4]), at + 9)
end

