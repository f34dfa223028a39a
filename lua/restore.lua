--[[ restore: writes back kept hits that the server may have lost, with their own times.
  Why a script: a hit that is there must not change, and a log's life may only grow.
  KEYS[i]  window log of hit i (one slot; a log may occur more than once)
  ARGV     per hit: capacity, life ms from its time, time us, id
  Output   nothing
  Edges    harmless if repeated; a hit whose life is over is left out; a hold with the same id stays a
           hold; a log keeps its newest hits up to twice the capacity. Twice, because a log that lost its
           hits may have admitted as many as it has room for: those are about to be refunded, and must not
           push out what was written back. A hit older than a forgiven one is forgiven.
]]
for i = 1, #KEYS do
  local key, at = KEYS[i], 4 * i - 3
  local left = ARGV[at + 1] - math.floor((clock - ARGV[at + 2]) / 1000)
  if left > 0 then
    local holds = in_flight(key)
    local time, forgiven = ARGV[at + 2], call('ZRANGE', key, '(0', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
    if forgiven and time + 0 < forgiven % HOLDS then time = time - HOLDS end
    if call('ZADD', key, 'NX', time, ARGV[at + 3]) == 1 then trim(key, 2 * ARGV[at], holds) end
    if call('PTTL', key) < left then call('PEXPIRE', key, left) end
  end
end
