--[[ read: the times of a log's newest hits.
  Why a script: the hits must be read at one time, and holds are found by rank.
  KEYS[1]  window log
  ARGV     the most hits to return
  Output   {now, holds in flight, then the time us of each kept hit, newest first, forgiven or not}
  Edges    writes nothing, except that holds whose owner died become kept hits (as in peek)
]]
local key = KEYS[1]
local holds = in_flight(key)
local out = { clock, holds }
local hits = call('ZRANGE', key, holds, holds + ARGV[1] - 1, 'REV', 'WITHSCORES')
for at = 2, #hits, 2 do
  out[#out + 1] = hits[at] % HOLDS
end
return out
