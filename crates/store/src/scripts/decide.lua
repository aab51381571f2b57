-- All limits of a request are looked at; then all of those that have room for it are taken, or none.
--
-- For every key there is the kind of its limit, what the limit has to say, and the kind's arguments. What limits say:
-- 'r' refuses whatever does not fit; 'q' refuses if no other 'q' has room, either; 's' is only told about.
-- The answer: the time, whether the request was let through, and for every key whether it fits and what was kept there.
-- Who only looks is told what would become of the request.
local held = redis.call('MGET', unpack(KEYS))
local reply, takes = { time[1], time[2], 0 }, {}
local passes, has_quotas, has_room = true, false, false
local at = 1
for i = 1, #KEYS do
  local kind, says = kinds[ARGV[at]], ARGV[at + 1]
  local fits, state
  at, fits, takes[2 * i], takes[2 * i + 1], state = kind(KEYS[i], held[i], at + 2)
  reply[2 + 2 * i], reply[3 + 2 * i] = fits and 1 or 0, state or held[i]
  if says == 'r' then
    passes = passes and fits
  elseif says == 'q' then
    has_quotas, has_room = true, has_room or fits
  end
end
passes = passes and (has_room or not has_quotas)
if passes then reply[3] = 1 end
if only_looks then return reply end
for i = 1, #KEYS do
  local value, life = takes[2 * i], takes[2 * i + 1]
  if reply[2 + 2 * i] == 0 then
    -- A log that counts refusals says how to.
    if life then reply[3 + 2 * i] = life() end
  elseif passes and type(value) == 'function' then
    value()
  elseif passes then
    redis.call('SET', KEYS[i], value, 'PX', life)
  end
end
return reply
