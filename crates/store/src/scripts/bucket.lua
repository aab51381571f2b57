-- A bucket whose tokens take whole microseconds: nearly all. The value is when it is full again, as a number, which takes the
-- least memory there is. Invariant: it is only moved ahead, by the price of a request that fitted.
-- Arguments: what may be missing, the price, what an empty bucket lacks, and how long a step is.
local function bucket(key, held, at)
  local room, price = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local full_at = now
  if held then
    full_at = tonumber(held)
    if full_at - now > 3601000000 + 11 * ARGV[at + 2] then
      -- Further ahead than anything can be: written before the clock jumped. It counts as empty.
      full_at = now + ARGV[at + 2]
      redis.call('SET', key, full_at, 'KEEPTTL')
    elseif full_at < now then
      full_at = now
    end
  end
  if full_at > now + room then return at + 4, false end
  full_at = full_at + price
  local _, life = step_of(full_at, ARGV[at + 3] + 0)
  return at + 4, true, full_at, math.floor(life)
end

