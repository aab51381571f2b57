-- How long the key of a bucket is kept: to the end of the quarter of its filling time in which it will be full again. Mostly that
-- is where the request before has put it, so that only the value moves, which costs the store half as much. Every script that
-- writes a bucket goes by it, and a key has one limit for ever: a value below the end of its quarter never outlives its key.
-- Returns when the quarter begins, and how many milliseconds the key is kept.
local function quarter(full_at, fill)
  local length = (fill - fill % 4) / 4 + 1
  local begins = full_at - full_at % length
  return begins, (begins + length - now) / 1000 + 2
end

