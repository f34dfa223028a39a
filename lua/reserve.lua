--[[ reserve: one hit in every bucket, or in none.
  Why a script: test and add must be one step, and MULTI cannot branch.
  KEYS[b]  window log of bucket b (one slot); if a rebuild is named, then the mark that it left; if the server may
           evict, then the key that says what it had evicted by then
  ARGV     id, kind (0 a hit, 1 a hold, 2 a look: judged as a hold, and nothing is written; 3 more if a rebuild
           is named, 6 if the server may evict, too);
           then per bucket: capacity, life ms, number of arguments for its rules;
           then per rule: max, marks, window us; if it follows the calendar: max, marks, first us of the unit,
           first us after it; at the end, the rebuild if one is named: its id, and the shape of its windows
  Marks    1 captcha + 2 monitored + 4 a rule of this limit is marked captcha + 8 waived (a solved challenge
           lifts it) + 16 calendar
  Output   {0, at, bucket, rule, remaining, oldest}  admitted, and counts from `at`; the tightest rule (bucket -1:
                                             none), and the time us of the oldest hit before that it counts (0: there
                                             is none, or it follows the calendar)
           {0, at, bucket, rule, remaining, oldest, bucket, rule, wait us, frees at us}  admitted, and what a
                                             monitored limit would have refused
           {1, now, bucket}                  holds in flight fill that bucket; nothing was written
           {2, now, bucket, rule, frees at us}  refused; nothing was written
           '2 s us score'                    the same from refuse.lua
           {3, now}                          now is outside a calendar unit that the caller sent
           {4}                               the windows are not complete by that rebuild; nothing was written
           Buckets and rules count from 0.
  Edges    a hit exactly `window` old does not count; two in one microsecond are two (members are unique);
           a forgiven hit has a negative score, which is outside every window of a captcha rule; a rule that
           blocks counts forgiven hits separately if there may be any: if the limit has a captcha rule, and for
           holds, because their limit may have lost its captcha rule since
]]
local id, kind, logs, mark, evicted = ARGV[1], ARGV[2], #KEYS, nil, nil
if kind > '5' then kind, logs, evicted = tostring(kind - 3), logs - 1, KEYS[logs] end
if kind > '2' then kind, logs, mark = tostring(kind - 3), logs - 1, KEYS[logs] end
local holds -- in flight in each bucket; looked for only if a rule seems to be full
local refused_at, refused_by, frees, softness
local noted_at, noted_by, noted_frees, noted_softness

-- Is a rule full? A look that takes holds for hits misses none that is: a hold only puts a newer hit in the
-- place of an older one. What it finds is true if no hold is in flight, otherwise it looks again beside them.
for look = looked and 3 or 1, 2 do
  local at = 2
  for b = 1, logs do
    local key, capacity, rule = KEYS[b], ARGV[at + 1], 0
    local last = at + 3 + ARGV[at + 3]
    at = at + 3
    while at < last do
      local max, marks, window, unit_end = ARGV[at + 1], ARGV[at + 2] + 0, ARGV[at + 3], nil
      at = at + 3
      if marks >= 16 then
        at = at + 1
        unit_end = ARGV[at] + 0
        if clock < window + 0 or clock >= unit_end then return { 3, clock } end
      end
      local rank = '-' .. (holds and max + holds[b] or max) -- `max` is text; arithmetic converts it to a number
      local oldest = call('ZRANGE', key, rank, rank, 'WITHSCORES')[2]
      if oldest then
        oldest = oldest + 0
        if max == capacity then trims = true end
        local captcha = marks % 2
        if captcha == 0 and oldest < 0 then oldest = oldest + HOLDS end
        local free = oldest + window
        if unit_end then free = oldest >= window + 0 and unit_end or clock end
        if free > clock and marks % 16 < 8 then
          if marks % 4 >= 2 then
            if not noted_at or captcha < noted_softness or captcha == noted_softness and free > noted_frees then
              noted_at, noted_by, noted_frees, noted_softness = b - 1, rule, free, captcha
            end
          elseif not refused_at or captcha < softness or captcha == softness and free > frees then
            refused_at, refused_by, frees, softness = b - 1, rule, free, captcha
          end
        end
      end
      rule = rule + 1
    end
  end
  if look == 2 or not (refused_at or noted_at) then break end
  local flying = 0
  for b = 1, logs do flying = flying + call('ZCOUNT', KEYS[b], '4e15', '+inf') end
  if flying == 0 then break end
  holds, refused_at, noted_at = {}, nil, nil
  for b = 1, logs do holds[b] = in_flight(KEYS[b]) end
end
if refused_at then return { 2, clock, refused_at, refused_by, frees } end

-- No rule is full. Holds in flight may still leave no room.
local times -- when the hit of a bucket counts, if not from now
local latest, at = clock, 2
local full_of_holds, room_at, room_by, left
local room_key, room_count

for b = 1, logs do
  local key, capacity, rule = KEYS[b], ARGV[at + 1], 0
  local last = at + 3 + ARGV[at + 3]
  -- Without a captcha rule nothing is forgiven. Then whatever is ahead of the clock, a hold too, counts for every
  -- rule: if one counts nothing, there is none, and two cheap counts replace the look at the newest.
  local plain = kind == '0' and ARGV[at + 5] % 8 < 4
  local now, flying, newest, sized
  if not plain then now, flying, newest = next_time(key) end
  at = at + 3
  while at < last do
    local max, marks, from = ARGV[at + 1], ARGV[at + 2] + 0, ARGV[at + 3]
    at = at + 3
    if max == capacity then sized = true end
    if marks >= 16 then at = at + 1 else from = clock - from + 1 end
    if marks % 4 < 2 and marks % 16 < 8 then
      local count = 0
      if plain or newest >= from + 0 then
        count = call('ZCOUNT', key, from, '+inf')
        if not now then
          now, flying = clock, 0
          if count > 0 and call('ZCOUNT', key, '(' .. now_text, '+inf') > 0 then
            now, flying = next_time(key)
            count = call('ZCOUNT', key, from, '+inf') -- without holds that have died
          end
        end
        if marks % 2 == 0 and (not plain or flying > 0) then
          count = count + call('ZCOUNT', key, from - HOLDS, '0')
        end
      end
      local room = max - count - 1
      if room < 0 then
        full_of_holds = full_of_holds or b - 1
      elseif not left or room < left then
        room_at, room_by, left = b - 1, rule, room
        room_key, room_count = key, marks >= 16 and 0 or count
      end
    end
    rule = rule + 1
  end
  if not now then now, flying = next_time(key) end
  if now > clock then
    times = times or {}
    times[b] = now
    if now > latest then latest = now end
  end
  if flying > 0 then
    holds = holds or {}
    holds[b] = flying
  end
  -- The log keeps more than any rule here counts, for another limit: no rule says whether it is full.
  trims = trims or not sized
end
if full_of_holds then return { 1, clock, full_of_holds } end
if kind == '2' then return { 0, latest, -1, -1, 0, 0 } end
if mark then
  -- The mark is what is sent, and the history of writes in which it was left (finish_rebuild.lua).
  local history = string.match(call('INFO', 'replication'), 'master_replid:(%x+)')
  if call('GET', mark) ~= ARGV[#ARGV] .. history then return { 4 } end
  if evicted then
    local count = string.match(call('INFO', 'stats'), 'evicted_keys:(%d+)')
    if call('GET', evicted) ~= string.sub(ARGV[#ARGV], 1, 6) .. count then return { 4 } end
  end
end

-- What a rule counts are the last in its log, whatever else is there. Of holds nobody knows when they leave it.
local oldest = 0
if room_count and room_count > 0 then
  local score = call('ZRANGE', room_key, -room_count, -room_count, 'WITHSCORES')[2] + 0
  if score < HOLDS then oldest = score % HOLDS end
end
at = 2
for b = 1, logs do
  local key, now = KEYS[b], times and times[b] or clock
  call('ZADD', key, kind == '1' and now + HOLDS or now == clock and now_text or now, id)
  live(key, ARGV[at + 2], now)
  if trims and kind == '0' then trim(key, ARGV[at + 1], holds and holds[b] or 0) end
  at = at + 3 + ARGV[at + 3]
end
if not left then room_at, room_by, left = -1, -1, 0 end
if not noted_at then return { 0, latest, room_at, room_by, left, oldest } end
return { 0, latest, room_at, room_by, left, oldest, noted_at, noted_by, noted_frees - clock, noted_frees }
