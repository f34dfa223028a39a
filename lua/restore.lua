--[[ restore: writes back kept hits that the server may have lost, with their own times.
  Why a script: a hit that is there must not change, and a log's life may only grow.
  KEYS[i]  window log (one slot)
  ARGV     per log: capacity, number of hits; per hit of it: life ms from its time, time us, id
  Output   nothing
  Edges    harmless if repeated; a hit whose life is over is left out; a hold with the same id stays a
           hold; a log keeps its newest hits up to twice the capacity. Twice, because a log that lost its
           hits may have admitted as many as it has room for: those are about to be refunded, and must not
           push out what was written back. A hit older than a forgiven one is forgiven.
           A log that is not there, as nearly all in a rebuild, takes three calls.
]]
local at = 1
for i = 1, #KEYS do
  local key, capacity, hits = KEYS[i], ARGV[at], {}
  local found, forgiven, longest, first = call('ZCARD', key), nil, 0, at + 2
  if found > 0 then
    forgiven = call('ZRANGE', key, '(0', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  end
  at = first + 3 * ARGV[at + 1]
  for hit = first, at - 1, 3 do
    local time = ARGV[hit + 1]
    local left = ARGV[hit] - math.floor((clock - time) / 1000)
    if left > 0 then
      if left > longest then longest = left end
      if forgiven and time + 0 < forgiven % HOLDS then time = time - HOLDS end
      hits[#hits + 1] = time
      hits[#hits + 1] = ARGV[hit + 2]
    end
  end
  if longest > 0 then
    local new = call('ZADD', key, 'NX', unpack(hits))
    if new > 0 and found + new > 2 * capacity then trim(key, 2 * capacity, in_flight(key)) end
    if found == 0 or call('PTTL', key) < longest then call('PEXPIRE', key, longest) end
  end
end
