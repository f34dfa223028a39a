--[[ window: the common beginning of the scripts. The same arithmetic as limiter/src/window.rs.
  A window log is one ZSET: a member per hit, its score the time in microseconds of the server's clock.
  A hold in flight has its time plus HOLDS as score, so that holds sort after every kept hit, can be counted
  and skipped by rank, and never mix with failures. A forgiven hit has its time minus HOLDS as score: it sorts
  before all others. Forgiven hits are the oldest, so ranks are still in the order of time. In all three states
  the time is the score modulo HOLDS.
  Rules marked `captcha` ignore forgiven hits, the others count them. (Scores are doubles: exact up to 9e15;
  times are 1.8e15, and pass 4e15 only in 2096.)
  Rules are judged at the server's clock. If it steps back, the hits ahead of it count for all rules, and no
  hit is written before them (log.lua).
  A number is sent to the server as %.17g, which keeps every digit; Lua's tostring would not. But formatting
  it costs as much as half a look-up, so text from ARGV is passed on as text if possible.
]]
local call = redis.call
local HOLDS = 4e15
local time = call('TIME')
local clock = time[1] * 1000000 + time[2]
