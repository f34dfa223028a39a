--[[ peek: the state of a log, rule by rule.
  Why a script: one time for all rules, and one round trip.
  KEYS[1]  window log
  ARGV     per rule: as for reserve
  Output   {now, holds in flight, then per rule: kept hits it counts (at most max), wait us};
           {-1, now} if now is outside a calendar unit that the caller sent
  Edges    a captcha rule does not count forgiven hits
]]
local key, at = KEYS[1], 0
local holds = in_flight(key)
local out = { clock, holds }
while at < #ARGV do
  local max, marks, window, unit_end = ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] + 0, nil
  local from = clock - window + 1
  at = at + 3
  if marks >= 16 then
    at = at + 1
    from, unit_end = window, ARGV[at] + 0
    if clock < from or clock >= unit_end then return { -1, clock } end
  end
  local count, wait = call('ZCOUNT', key, from, HOLDS - 1), 0
  if marks % 2 == 0 then count = count + call('ZCOUNT', key, from - HOLDS, '0') end
  if count >= max then
    count = max
    local rank = -max - holds
    wait = (unit_end or call('ZRANGE', key, rank, rank, 'WITHSCORES')[2] % HOLDS + window) - clock
  end
  out[#out + 1] = count
  out[#out + 1] = wait
end
return out
