--[[ reserve: one hit in every bucket, or in none.
  Why a script: test and add must be one step, and MULTI cannot branch.
  KEYS[b]  window log of bucket b (one slot)
  ARGV     id, kind (0 a hit, 1 a hold), solved (1: rules marked `captcha` let it pass);
           then per bucket: capacity, life ms, number of rules;
           then per rule: max, marks (1 captcha + 2 monitored + 4 a rule of this limit is marked captcha), window
           us or first us of the calendar unit, 0 or the first us after the calendar unit
  Output   {0, now, bucket, rule, remaining}  admitted; the tightest rule (bucket -1: none)
           {0, now, bucket, rule, remaining, bucket, rule, wait us, frees at us}  admitted, and what a
                                             monitored limit would have refused
           {1, now, bucket}                  holds in flight fill that bucket; nothing was written
           {2, now, bucket, rule, wait us, frees at us}  refused; nothing was written
           {3, now}                          now is outside a calendar unit that the caller sent
           Buckets and rules count from 0.
  Edges    a hit exactly `window` old does not count; two in one microsecond are two (members are unique);
           a forgiven hit has a negative score, which is outside every window of a captcha rule; a rule that
           blocks counts forgiven hits separately if there may be any: if the limit has a captcha rule, and for
           holds, because their limit may have lost its captcha rule since
]]
local id, kind, solved = ARGV[1], ARGV[2], ARGV[3]
local refused, noted, held, room
local nows, reached = {}, {}
local latest, at = clock, 3

for b = 1, #KEYS do
  local key, capacity, rules = KEYS[b], ARGV[at + 1], ARGV[at + 3] + 0
  at = at + 3
  local sized = false
  local now, holds, newest = open(key)
  nows[b] = now
  if now > latest then latest = now end
  for r = 1, rules do
    local max, marks = ARGV[at + 1], ARGV[at + 2] + 0 -- `max` is text; arithmetic converts it to a number
    local window, unit_end = ARGV[at + 3] + 0, ARGV[at + 4] + 0
    at = at + 4
    local start = now - window
    if unit_end ~= 0 then
      if now < window or now >= unit_end then return { 3, now } end
      start = window - 1
    end
    local captcha, monitored = marks % 2, marks % 4 >= 2
    local waived = solved == '1' and captcha == 1
    local oldest = newest and score(key, holds == 0 and max or max + holds)
    if max == capacity then
      sized = true
      if oldest then reached[b] = holds end
    end
    if captcha == 0 then oldest = time_of(oldest) end
    if oldest and oldest > start then
      local frees = unit_end ~= 0 and unit_end or oldest + window
      local wait = frees - now
      if waived then
        -- a solved challenge lifts this rule
      elseif monitored then
        if not noted or captcha < noted[4] or (captcha == noted[4] and wait > noted[3]) then
          noted = { b - 1, r - 1, wait, captcha, frees }
        end
      elseif not refused or captcha < refused[4] or (captcha == refused[4] and wait > refused[3]) then
        refused = { b - 1, r - 1, wait, captcha, frees }
      end
    elseif not waived and not monitored and not refused then
      local left = max + 0
      if newest and newest > start then
        left = max - call('ZCOUNT', key, start + 1, '+inf')
        if captcha == 0 and (marks >= 4 or kind == '1' or holds > 0) then
          left = left - call('ZCOUNT', key, start + 1 - HOLDS, '0')
        end
      end
      if left <= 0 then
        held = held or b - 1
      elseif not room or left - 1 < room[3] then
        room = { b - 1, r - 1, left - 1 }
      end
    end
  end
  -- The log keeps more than any rule here counts, for another limit: no rule says whether it is full.
  if not sized then reached[b] = holds end
end

if refused then return { 2, latest, refused[1], refused[2], refused[3], refused[5] } end
if held then return { 1, latest, held } end

at = 3
for b = 1, #KEYS do
  local key = KEYS[b]
  call('ZADD', key, kind == '1' and nows[b] + HOLDS or nows[b], id)
  live(key, ARGV[at + 2], nows[b])
  if reached[b] and kind == '0' then trim(key, ARGV[at + 1], reached[b]) end
  at = at + 3 + 4 * ARGV[at + 3]
end
room = room or { -1, -1, 0 }
if not noted then return { 0, latest, room[1], room[2], room[3] } end
return { 0, latest, room[1], room[2], room[3], noted[1], noted[2], noted[3], noted[5] }
