-- A window's number, what was used of it, and what was used of the one before: "number:current:previous".
-- Invariant: current is never above the limit, and previous is what current was when its window ended.
-- Arguments: microseconds per window, cost, limit.
local function sliding(key, held, at)
  local period, cost, limit = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local into = math.fmod(now, period)
  local number = (now - into) / period
  local current, previous = 0, 0
  if held then
    local held_number, held_current, held_previous = string.match(held, '^(%d+):(%d+):(%d+)$')
    local passed = number - held_number
    if passed == 0 then
      current, previous = tonumber(held_current), tonumber(held_previous)
    elseif passed == 1 then
      previous = tonumber(held_current)
    elseif passed < 0 and -passed * period <= 1000000 + 2 * period then
      -- The clock went back a little: for this key it stands still meanwhile.
      number, into = tonumber(held_number), 0
      current, previous = tonumber(held_current), tonumber(held_previous)
    elseif passed < 0 then
      current = limit
      redis.call('SET', key, string.format('%d:%d:0', number, current), 'KEEPTTL')
    end
  end
  local room = limit - cost - current
  if room < 0 or not no_more(previous, period - into, room, period) then return at + 3, false end
  local value = string.format('%d:%d:%d', number, current + cost, previous)
  return at + 3, true, value, math.ceil((2 * period - into) / 1000) + 1
end

