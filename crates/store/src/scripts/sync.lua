-- Adds what a host has spent by itself to what all hosts have, and tells it the sums. The first key is the host's: the number of
-- the last batch that was added, so that one which is sent again, since its reply was lost, is told about and not added.
-- Arguments: the batch's number, how many milliseconds the number is kept, and for every other key what comes next to the
-- kinds below and what was spent, which is below zero where more was given back.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local held = redis.call('MGET', unpack(KEYS))
local is_new = not held[1] or tonumber(ARGV[1]) > tonumber(held[1])

-- What is further ahead than clocks differ was written before this one jumped back. It counts as written now: nothing is forgotten,
-- and nobody waits until the clock is there again.
local latest = now + 1000000

-- Tokens that are missing, and since when: "missing:micros". They come back at so many a microsecond.
local function steady(held, rate, most, spent)
  local missing, has_jumped = 0, false
  if held then
    local before, at = string.match(held, '^(.+):(%d+)$')
    missing = math.max(0, before - rate * math.max(0, now - at))
    has_jumped = tonumber(at) > latest
  end
  missing = math.min(math.max(0, missing + spent), most)
  return missing, string.format('%.17g:%d', missing, now), missing / rate / 1000, has_jumped
end

-- Tokens that were used, and of which window: "used:start". What is told of a window that is over is of no use any more.
local function window(held, start, most, spent, length)
  local used, at, has_jumped = 0, start, false
  if held then
    local before, begun = string.match(held, '^(.+):(%d+)$')
    begun, has_jumped = tonumber(begun), tonumber(begun) > latest
    if has_jumped then
      begun = start
    elseif start > latest then
      -- Told by a host that has not noticed yet.
      start, at = begun, begun
    end
    if begun >= start then used, at = tonumber(before), begun end
  end
  if at == start then used = math.min(math.max(0, used + spent), most) end
  return used, string.format('%.17g:%d', used, at), (at + length - now) / 1000, has_jumped
end

local reply = { time[1], time[2] }
for i = 1, #KEYS - 1 do
  local at = 5 * i - 2
  local kind, first, most = ARGV[at] == 's' and steady or window, tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local spent = is_new and tonumber(ARGV[at + 3]) or 0
  local missing, value, life, has_jumped = kind(held[i + 1], first, most, spent, tonumber(ARGV[at + 4]))
  if spent ~= 0 or has_jumped then
    if life > 0 then
      redis.call('SET', KEYS[i + 1], value, 'PX', math.ceil(life) + 1)
    else
      redis.call('DEL', KEYS[i + 1])
    end
  end
  reply[2 + i] = string.format('%.17g', missing)
end
if is_new then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
return reply
