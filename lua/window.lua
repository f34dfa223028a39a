--[[ window: the common beginning of the scripts. The same arithmetic as src/throttle/window.rs.
  A window log is one ZSET: a member per hit, its score the time in microseconds of the server's clock.
  A hold in flight has its time plus HOLDS as score, so that holds sort after every kept hit, can be counted
  and skipped by rank, and never mix with failures. A forgiven hit has its time minus HOLDS as score: it sorts
  before all others. Forgiven hits are the oldest, so ranks are still in the order of time.
  Rules marked `captcha` ignore forgiven hits, the others count them. (Scores are doubles: exact up to 9e15;
  times are 1.8e15, and pass 4e15 only in 2096.)
  A number is sent to the server as %.17g, which keeps every digit; Lua's tostring would not. But formatting
  it costs as much as half a look-up, so text from ARGV is passed on as text if possible.
]]
local call = redis.call
local HOLDS = 4e15
-- How long a hold may stay unsettled before it counts as a failure (window.rs: HOLD_LIFE).
local HOLD_LIFE = 15e6
local time = call('TIME')
local clock = time[1] * 1000000 + time[2]

-- The score of the hit at this rank from the newest, from 1; nil if there is none.
local function score(key, rank)
  rank = '-' .. rank
  local found = call('ZRANGE', key, rank, rank, 'WITHSCORES')[2]
  return found and found + 0
end

-- The time of a kept hit, from its score; nil if there is none.
local function time_of(score)
  if score and score < 0 then return score + HOLDS end
  return score
end

-- Turns the holds whose owner died into kept hits (the only write of a refusal, once per hold),
-- and counts those in flight. Returns their number and the newest time in the log.
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

-- Reads a log: its current time (never older than its newest hit, whatever the clock says),
-- its holds in flight, and its newest score (nil: no log; for a forgiven hit, its time).
local function open(key)
  local newest = score(key, '1')
  if newest and newest < 0 then newest = newest + HOLDS end
  if not newest or newest <= clock then return clock, 0, newest end
  if newest < HOLDS then return newest, 0, newest end
  local holds, now = holds_of(key, newest)
  return now, holds, newest
end

-- Keeps a log for `life` ms after a hit at `now`, which may be ahead of a clock that stepped back.
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
