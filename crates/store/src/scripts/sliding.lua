-- A window's number, what was used of it, and what was used of the one before: "number:current:previous".
-- Invariant: current is never above the limit, and previous is what current was when its window ended.

-- The number of the window that it is now for this key, how far into it that is, and what was used of it and of the last.
local function slid(key, held, period, limit)
  local into = math.fmod(now, period)
  local number = (now - into) / period
  if not held then return number, into, 0, 0 end
  local held_number, current, previous = string.match(held, '^(%d+):(%d+):(%d+)$')
  local passed = number - held_number
  if passed == 0 then
    return number, into, tonumber(current), tonumber(previous)
  elseif passed == 1 then
    return number, into, 0, tonumber(current)
  elseif passed > 1 then
    return number, into, 0, 0
  elseif -passed * period <= 1000000 + 2 * period then
    -- The clock went back a little: for this key it stands still meanwhile.
    return tonumber(held_number), 0, tonumber(current), tonumber(previous)
  end
  redis.call('SET', key, string.format('%d:%d:0', number, limit), 'KEEPTTL')
  return number, into, limit, 0
end

-- Arguments: microseconds per window, cost, limit.
local function sliding(key, held, at)
  local period, cost, limit = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local number, into, current, previous = slid(key, held, period, limit)
  local room = limit - cost - current
  if room < 0 or not no_more(previous, period - into, room, period) then return at + 3, false end
  local value = string.format('%d:%d:%d', number, current + cost, previous)
  return at + 3, true, value, math.ceil((2 * period - into) / 1000) + 1
end

