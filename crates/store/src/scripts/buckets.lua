-- Buckets whose tokens take whole microseconds, and that refuse whatever does not fit: nearly all limits. What `decide.lua` does
-- with `bucket.lua`, written out for these, since in most requests there is nothing else. Numbers are formatted here since
-- the store takes longer to.
-- Arguments for every key: what may be missing, the price, and what an empty bucket lacks.
local held = redis.call('MGET', unpack(KEYS))
local reply, values, passes = { time[1], time[2], 0 }, {}, true
for i = 1, #KEYS do
  local full_at = held[i] and held[i] + 0 or now
  if full_at < now then full_at = now end
  local missing, room = full_at - now, ARGV[3 * i - 2] + 0
  if missing > room and missing > 3601000000 + 11 * ARGV[3 * i] then
    -- Further ahead than anything can be: written before the clock jumped. It counts as empty.
    missing = ARGV[3 * i] + 0
    redis.call('SET', KEYS[i], now + missing, 'KEEPTTL')
  end
  local fits = missing <= room
  passes = passes and fits
  values[i] = missing + ARGV[3 * i - 1]
  reply[2 + 2 * i], reply[3 + 2 * i] = fits and 1 or 0, held[i]
end
if passes then
  reply[3] = 1
  local call, format = redis.call, string.format
  for i = 1, #KEYS do
    local missing = values[i]
    call('PSETEX', KEYS[i], format('%d', missing / 1000 + 2), format('%d', now + missing))
  end
end
return reply
