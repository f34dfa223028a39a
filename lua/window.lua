--[[ window: what every script here begins with. The same arithmetic as src/throttle/window.rs.
  A window log is one ZSET: a member a hit, its score the time in microseconds of the server's clock.
  A hold in flight stands HOLDS above its time, so that holds sort after every kept hit, can be counted
  and skipped by rank, and never mix with failures. A hit that a success has forgiven stands HOLDS below
  its time: before all others, as those that were forgiven are the oldest, so that ranks go by time still.
  Rules marked `captcha` pass over it, the others do not. (Scores are doubles: exact up to 9e15; times are
  1.8e15 until the year 2095 passes 4e15.)
  A number goes to the server as %.17g, which keeps every digit; Lua's tostring would not. But printing
  it so costs as much as half a look-up: what ARGV gave as text is passed on as text where it can be.
]]
local call = redis.call
local HOLDS = 4e15
-- How long a hold may stay unresolved before it counts as a failure (window.rs: HOLD_LIFE).
local HOLD_LIFE = 15e6
local time = call('TIME')
local clock = time[1] * 1000000 + time[2]

-- The score of the hit at this rank from the newest, from 1; nil where there is none.
local function score(key, rank)
  rank = '-' .. rank
  local found = call('ZRANGE', key, rank, rank, 'WITHSCORES')[2]
  return found and found + 0
end

-- When a kept hit was, by its score; nil where there is none.
local function time_of(score)
  if score and score < 0 then return score + HOLDS end
  return score
end

-- Turns the holds whose owner died into kept hits (the one write that a refusal may do, once a hold),
-- and counts those in flight. Answers them and the newest time in the log.
local function holds_of(key, newest)
  local now = math.max(clock, newest - HOLDS)
  local kept = time_of(score(key, call('ZCOUNT', key, HOLDS, '+inf') + 1))
  if kept and kept > now then now = kept end
  local dead = call('ZRANGE', key, HOLDS, HOLDS + now - HOLD_LIFE, 'BYSCORE', 'WITHSCORES')
  for i = 1, #dead, 2 do
    call('ZADD', key, dead[i + 1] - HOLDS, dead[i])
  end
  return call('ZCOUNT', key, HOLDS, '+inf'), now
end

-- Reads a log: the time it counts by (never older than its newest hit, whatever the clock says),
-- its holds in flight, and its newest score (nil: no log; of one that was forgiven, its time).
local function open(key)
  local newest = score(key, '1')
  if newest and newest < 0 then newest = newest + HOLDS end
  if not newest or newest <= clock then return clock, 0, newest end
  if newest < HOLDS then return newest, 0, newest end
  local holds, now = holds_of(key, newest)
  return now, holds, newest
end

-- Has a log live on for `life` ms after a hit at `now`, which may be ahead of a clock that stepped back.
local function live(key, life, now)
  if now > clock then life = life + math.ceil((now - clock) / 1000) end
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
