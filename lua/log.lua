--[[ log: how the scripts read holds and write hits, after window.lua.
  A hit is written at the server's clock, but never before the newest hit of its log: if the clock stepped
  back and comes forward again, the hits written in between must not leave their windows early.
]]
-- How long a hold may stay unsettled before it counts as a failure (window.rs: HOLD_LIFE).
local HOLD_LIFE = 15e6
local now_text = string.format('%d', clock)

-- Turns the holds whose owner died into kept hits (the only write of a refusal, once per hold).
-- Returns the number of those in flight.
local function in_flight(key)
  if call('ZCOUNT', key, '4e15', '+inf') == 0 then return 0 end
  local dead = call('ZRANGE', key, HOLDS, HOLDS + clock - HOLD_LIFE, 'BYSCORE', 'WITHSCORES')
  for i = 1, #dead, 2 do
    call('ZADD', key, dead[i + 1] - HOLDS, dead[i])
  end
  return call('ZCOUNT', key, '4e15', '+inf')
end

-- The time at which a hit is written now, the number of holds in flight, and the newest time in the log, of a
-- hold with HOLDS added; 0 if there is no log.
local function next_time(key)
  local newest = (call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2] or 0) + 0
  if newest < HOLDS then
    newest = newest % HOLDS
    return math.max(clock, newest), 0, newest
  end
  local holds = in_flight(key)
  local kept = (call('ZRANGE', key, -1 - holds, -1 - holds, 'WITHSCORES')[2] or 0) % HOLDS
  return math.max(clock, kept, newest % HOLDS), holds, newest
end

-- Keeps a log for `life` ms after a hit at this time, which a clock that stepped back reaches later.
local function live(key, life, time)
  if time > clock then life = life + math.ceil((time - clock) / 1000) end
  call('PEXPIRE', key, life)
end

-- Drops the oldest kept hits beyond the capacity, a bounded number at a time.
local function trim(key, capacity, holds)
  local excess = call('ZCARD', key) - holds - capacity
  if excess == 1 then
    call('ZREMRANGEBYRANK', key, '0', '0')
  elseif excess > 1 then
    call('ZREMRANGEBYRANK', key, 0, math.min(excess, 100) - 1)
  end
end
