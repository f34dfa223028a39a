--[[ peek: the state of a log, rule by rule.
  Why a script: one time for all rules, and one round trip.
  KEYS[1]  window log
  ARGV     per rule: as for reserve
  Output   {now, holds in flight, then per rule: kept hits it counts (at most max), wait us};
           {-1, now} if now is outside a calendar unit that the caller sent
  Edges    a captcha rule does not count forgiven hits
]]
local key = KEYS[1]
local now, holds, newest = open(key)
local out = { now, holds }
for at = 0, #ARGV - 1, 4 do
  local max, window, unit_end = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local start = now - window
  if unit_end ~= 0 then
    if now < window or now >= unit_end then return { -1, now } end
    start = window - 1
  end
  local count, wait = 0, 0
  if newest then
    count = call('ZCOUNT', key, start + 1, HOLDS - 1)
    if ARGV[at + 2] % 2 == 0 then count = count + call('ZCOUNT', key, start + 1 - HOLDS, '0') end
    count = math.min(max, count)
    if count == max then
      wait = (unit_end ~= 0 and unit_end or time_of(score(key, max + holds)) + window) - now
    end
  end
  out[#out + 1] = count
  out[#out + 1] = wait
end
return out
