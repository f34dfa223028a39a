--[[ settle: how a reservation ended, bucket by bucket.
  Why a script: a kept hold moves from the holds to the time of its outcome in one step.
  KEYS[b]  window log of bucket b (one slot)
  ARGV     id; then per bucket: outcome, capacity, life ms, up_to us; if the state afterwards is wanted, then as for
           state
  Outcomes K  it counts, from now; written anew if the log was lost; unchanged if it counts already
           R  it is removed; harmless if repeated
           F  it is removed, and kept hits up to `up_to` are forgiven, unless another hold is in flight: each
              moves HOLDS below its time, once, so that captcha rules ignore it
  Output   {time, now}: if a bucket kept it, the time from which it counts (the latest of them), otherwise now; then the
           state, if it is wanted and now is in every calendar unit that the caller sent
  Edges    at most MOST_FORGIVEN move at once, the oldest first
]]
-- hits.rs: MOST_FORGIVEN.
local MOST_FORGIVEN = 1000
local id, at = ARGV[1], 1
local kept
for b = 1, #KEYS do
  local key, outcome, capacity, life = KEYS[b], ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3]
  if outcome == 'K' then
    local now, holds = next_time(key)
    local stands = call('ZSCORE', key, id)
    local from = stands and stands % HOLDS
    if not stands or stands + 0 >= HOLDS then
      from = now
      call('ZADD', key, now, id)
      trim(key, capacity, stands and holds - 1 or holds)
    end
    live(key, life, now)
    kept = math.max(kept or from, from)
  else
    call('ZREM', key, id)
    -- Holds are looked for after the own one is gone: nearly always there is no other, and that is one call.
    if in_flight(key) == 0 and outcome == 'F' then
      local hits = call('ZRANGE', key, '0', ARGV[at + 4], 'BYSCORE', 'LIMIT', '0', MOST_FORGIVEN, 'WITHSCORES')
      for i = 1, #hits, 2 do
        call('ZADD', key, hits[i + 1] - HOLDS, hits[i])
      end
    end
  end
  at = at + 4
end
return ARGV[at + 1] and state(at, { kept or clock, clock }) or { kept or clock, clock }
