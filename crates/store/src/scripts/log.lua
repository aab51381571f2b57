-- A sorted set of requests. The score is when one came, in microseconds; the member is how many tokens were ever taken
-- up to and with it, in sixteen digits so that those of one microsecond are in order, and how many it took itself.
-- Invariant: what counts is the difference of two such sums, so that it need not be added up.
-- Arguments: period, gap, cost, limit, the most tokens that are remembered, and whether refusals count.
local function sum_of(member) return tonumber(string.sub(member, 1, 16)) end
local function tokens_of(member) return tonumber(string.sub(member, 18)) end
local function entry(sum, tokens) return string.format('%016d:%d', sum, tokens) end

-- Tokens that count, their sum, and when the last request came.
local function logged(key, period)
  local newest = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
  if not newest[1] then return 0, 0, 0 end
  local sum, last = sum_of(newest[1]), tonumber(newest[2])
  local from = string.format('(%d', now - period)
  local oldest = redis.call('ZRANGEBYSCORE', key, from, '+inf', 'LIMIT', 0, 1)
  if not oldest[1] then return 0, sum, last end
  return sum - sum_of(oldest[1]) + tokens_of(oldest[1]), sum, last
end

-- When the request came that has to be forgotten before no more than `room` tokens count.
local function frees_at(key, sum, room)
  local low, high = 0, redis.call('ZCARD', key) - 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    local member = redis.call('ZRANGE', key, middle, middle)[1]
    if sum_of(member) >= sum - room then high = middle else low = middle + 1 end
  end
  return tonumber(redis.call('ZRANGE', key, low, low, 'WITHSCORES')[2])
end

-- Forgets tokens that are too many, the oldest first; and keeps what is older than a whole limit's worth together with
-- the oldest of that, so that there are never more members than tokens in the limit.
local function tidy(key, used, limit, most)
  local excess = used - most
  while excess > 0 do
    local oldest = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    local tokens = tokens_of(oldest[1])
    redis.call('ZREM', key, oldest[1])
    if tokens > excess then redis.call('ZADD', key, oldest[2], entry(sum_of(oldest[1]), tokens - excess)) end
    used, excess = used - math.min(tokens, excess), excess - tokens
  end
  local two = redis.call('ZRANGE', key, 0, 1, 'WITHSCORES')
  while two[3] and used - tokens_of(two[1]) >= limit do
    redis.call('ZREM', key, two[1], two[3])
    redis.call('ZADD', key, two[4], entry(sum_of(two[3]), tokens_of(two[1]) + tokens_of(two[3])))
    two = redis.call('ZRANGE', key, 0, 1, 'WITHSCORES')
  end
end

local function log(key, _, at)
  local period, gap, cost = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local limit, most, counts = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), ARGV[at + 5] == '1'
  local room = limit - cost
  local used, sum, last = logged(key, period)

  local function record()
    if cost == 0 then return end
    local tokens = math.min(cost, most)
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now - period)
    last = used == 0 and now or math.max(last, now)
    sum, used = used == 0 and tokens or sum + tokens, used + tokens
    redis.call('ZADD', key, last, entry(sum, tokens))
    if counts then
      tidy(key, used, limit, most)
      used = math.min(used, most)
    end
    redis.call('PEXPIRE', key, math.ceil((last - now + math.max(period, gap)) / 1000) + 1)
  end

  local function state()
    local frees = used > room and room >= 0 and frees_at(key, sum, room) or 0
    return string.format('%d:%d:%d', used, frees, last)
  end

  if last > now + 1000000 then
    -- Written before the clock jumped: it counts from now on, for one period and no longer.
    redis.call('DEL', key)
    redis.call('ZADD', key, now, entry(sum, used))
    redis.call('PEXPIRE', key, math.ceil(math.max(period, gap) / 1000) + 1)
    last = now
  end
  local fits = used <= room and (gap == 0 or last == 0 or last + gap <= now)
  local refuse = not fits and counts and function() record() return state() end
  return at + 6, fits, record, refuse, sum > 0 and state()
end

