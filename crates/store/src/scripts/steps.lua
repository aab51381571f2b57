-- How long the key of a bucket is kept: to the end of the step of time in which it will be full again. Mostly that is where the
-- request before has put it, so that only the value moves, which costs the store half as much. Every script that writes a
-- bucket goes by the same steps, and a key has one limit for ever: no value that moves within a step outlives its key.
-- Returns when the step begins, and how many milliseconds the key is kept.
local function step_of(full_at, length)
  local begins = full_at - full_at % length
  return begins, (begins + length - now) / 1000 + 2
end

