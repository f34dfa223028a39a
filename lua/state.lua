--[[ state: the state of logs, rule by rule: all that peek answers, and what settle adds if it is asked. After log.lua.
  Why a script: it ends both.
  KEYS[b]  window log of bucket b
  ARGV     from the given place on, per log: number of arguments for its rules; per rule: as for reserve
  Output   appended, per log: holds in flight, then per rule: kept hits it counts (at most max), wait us;
           nil if now is outside a calendar unit that the caller sent
  Edges    a captcha rule does not count forgiven hits
]]
local function state(at, out)
  for b = 1, #KEYS do
    local key, last = KEYS[b], at + 1 + ARGV[at + 1]
    local holds = in_flight(key)
    at = at + 1
    out[#out + 1] = holds
    while at < last do
      local max, marks, window, unit_end = ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] + 0, nil
      local from = clock - window + 1
      at = at + 3
      if marks >= 16 then
        at = at + 1
        from, unit_end = window, ARGV[at] + 0
        if clock < from or clock >= unit_end then return nil end
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
  end
  return out
end
