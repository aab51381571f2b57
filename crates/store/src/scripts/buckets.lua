-- Buckets whose tokens take whole microseconds, and that refuse whatever does not fit: nearly all limits. What `decide.lua` does
-- with `bucket.lua`, written out for these, since in most requests there is nothing else. Numbers that are written are
-- formatted here, since the store takes longer to.
-- Arguments for every key: what may be missing, the price, what an empty bucket lacks, and how long a step is.
-- The answer, in numbers alone: the time, whether the request was let through, what was kept at every key, and if it was not
-- let through whether it fits at every key.
local held = redis.call('MGET', unpack(KEYS))
local count = #KEYS
local reply, values, fitting, passes = { now, 0 }, {}, {}, true
for i = 1, count do
  local full_at, missing, room = false, 0, ARGV[4 * i - 3] + 0
  if held[i] then
    full_at = held[i] + 0
    if full_at > now then missing = full_at - now end
    if missing > room and missing > 3601000000 + 11 * ARGV[4 * i - 1] then
      -- Further ahead than anything can be: written before the clock jumped. It counts as empty.
      missing = ARGV[4 * i - 1] + 0
      redis.call('SET', KEYS[i], now + missing, 'KEEPTTL')
    end
  end
  reply[2 + i] = full_at
  if missing > room then passes = false else fitting[i] = true end
  values[i] = missing + ARGV[4 * i - 2]
end
if not passes then
  for i = 1, count do reply[2 + count + i] = fitting[i] and 1 or 0 end
  return reply
end
reply[2] = 1
local call, format = redis.call, string.format
for i = 1, count do
  local was_full_at, full_at = reply[2 + i], now + values[i]
  local begins, life = step_of(full_at, ARGV[4 * i] + 0)
  if was_full_at and was_full_at >= begins and was_full_at <= full_at then
    call('INCRBY', KEYS[i], format('%d', full_at - was_full_at))
  else
    call('PSETEX', KEYS[i], format('%d', life), format('%d', full_at))
  end
end
return reply
