--[[ restore: kept hits that the server may have lost, written back with their own times.
  Why a script: a hit that stands must stay as it stands, and a life may only grow.
  KEYS[i]  window log of hit i (one slot; a log may come more than once)
  ARGV     a hit: capacity, life ms from its time, time us, id
  Output   nothing
  Edges    harmless when repeated; a hit whose life is over is left out; a hold of the same id stays a
           hold; of more than twice the capacity the newest stay. Twice, because a log that has lost its
           hits may have admitted as many as it has room for: they are about to be refunded, and must not
           have pushed out what was written back. What is older than a hit that was forgiven is forgiven.
]]
for i = 1, #KEYS do
  local key, at = KEYS[i], 4 * i - 3
  local left = ARGV[at + 1] - math.floor((clock - ARGV[at + 2]) / 1000)
  if left > 0 then
    local _, holds = open(key)
    local time, forgiven = ARGV[at + 2], call('ZRANGE', key, '(0', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
    if forgiven and time + 0 < time_of(forgiven + 0) then time = time - HOLDS end
    if call('ZADD', key, 'NX', time, ARGV[at + 3]) == 1 then trim(key, 2 * ARGV[at], holds) end
    if call('PTTL', key) < left then call('PEXPIRE', key, left) end
  end
end
