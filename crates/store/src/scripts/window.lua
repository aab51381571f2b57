-- A window's number and what was used of it, in as many digits as the limit has, which together are a number that takes the
-- least memory there is; or "number:used" where more than the limit was used. Invariant: in every window that follows
-- the limit comes off what was used, so that what is booked ahead is used up in the windows it was booked in.
local function written(number, used, limit, digits)
  if used > limit then return string.format('%d:%d', number, used) end
  return string.format('%d%0' .. digits .. 'd', number, used)
end

local function read(held, digits)
  local number, used = string.match(held, '^(%d+):(%d+)$')
  return number or string.sub(held, 1, -digits - 1), used or string.sub(held, -digits)
end

-- What was used of the window with this number. More than can be was written before the clock jumped, and counts as one limit.
local function used_of(key, held, number, limit, most, digits)
  local held_number, held_used = read(held, digits)
  local used = math.max(0, held_used - (number - held_number) * limit)
  if used > most then
    used = limit
    redis.call('SET', key, written(number, used, limit, digits), 'KEEPTTL')
  end
  return used
end

-- How many windows later the last of what was used is used up.
local function later_by(used, limit) return math.max(0, math.ceil(used / limit) - 1) end

-- Arguments: cost, limit, how many microseconds the request may be held back (none fits if below zero), and what is
-- more than can be.
local function count(key, held, number, left, period, at)
  local cost, limit, wait = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local digits = #ARGV[at + 1]
  local used = cost + (held and used_of(key, held, number, limit, tonumber(ARGV[at + 3]), digits) or 0)
  local later = later_by(used, limit)
  if wait < 0 or later > 0 and left + (later - 1) * period > wait then return false end
  return true, written(number, used, limit, digits), math.ceil((left + later * period) / 1000) + 1
end

-- The number of the window at a moment, what is left of it and how long the next ones are, of windows of so many
-- microseconds. Arguments: period, and when number zero begins.
local function window_at(moment, at)
  local period = tonumber(ARGV[at])
  local since = moment - ARGV[at + 1]
  local into = math.fmod(since, period)
  return (since - into) / period, period - into, period
end

-- Arguments: those of `window_at`, and count's.
local function window(key, held, at)
  local number, left, period = window_at(now, at)
  return at + 6, count(key, held, number, left, period, at + 2)
end

-- The first day of a month, counted from the epoch; months count from January of the year 0.
local function first_day(month)
  local year, of_year = math.floor((month - 2) / 12), (month - 2) % 12
  local era = math.floor(year / 400)
  local of_era = year % 400
  local days = math.floor((153 * of_year + 2) / 5)
  return era * 146097 + of_era * 365 + math.floor(of_era / 4) - math.floor(of_era / 100) + days - 719468
end

-- The same of months of the calendar, counted in years that begin in March, so that the leap day is the last, and in eras
-- of 400 years, after which the calendar repeats. Arguments: months per window, and seconds east of UTC.
local function month_at(moment, at)
  local per_window = tonumber(ARGV[at])
  local day = math.floor((math.floor(moment / 1000000) + ARGV[at + 1]) / 86400) + 719468
  local era = math.floor(day / 146097)
  local of_era = day % 146097
  local year = math.floor(
    (of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524) - math.floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local month = math.floor((5 * of_year + 2) / 153) + 2
  local number = math.floor(((era * 400 + year) * 12 + month) / per_window)
  local ends = (first_day((number + 1) * per_window) * 86400 - ARGV[at + 1]) * 1000000
  return number, ends - moment, 31 * 86400 * 1000000
end

-- Arguments: those of `month_at`, and count's.
local function months(key, held, at)
  local number, left, period = month_at(now, at)
  return at + 6, count(key, held, number, left, period, at + 2)
end

