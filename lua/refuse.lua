--[[ refuse: the quick way to refuse, before the rest of reserve: one bucket with one sliding rule that is full.
  Why a script: it begins reserve. Why apart: a flood of refusals is mostly this. It decides nothing differently, but
  it makes no tables and no functions, and it answers in text, because an array of five costs as much as a look-up.
  KEYS[1]  window log; then the mark, if a rebuild is named (a full rule refuses whether windows are complete or not)
  ARGV     as for reserve
  Output   '2 s us score': the server's time in seconds and microseconds, and the score of the hit in the way
  Edges    a forgiven hit has a negative score and a hold a huge one: neither is answered here. Nor is a rule
           that is monitored, waived or follows the calendar: its marks are others
]]
local looked, trims = false, false -- whether no rule is full; whether a log may hold as many hits as it keeps
if #ARGV == (ARGV[2] > '2' and 9 or 8) and (ARGV[7] == '0' or ARGV[7] == '5') then
  local rank = '-' .. ARGV[6]
  local oldest = call('ZRANGE', KEYS[1], rank, rank, 'WITHSCORES')[2]
  if oldest then
    local frees = oldest + ARGV[8]
    if frees > clock and call('ZCOUNT', KEYS[1], '4e15', '+inf') == 0 then
      return '2 ' .. time[1] .. ' ' .. time[2] .. ' ' .. oldest
    end
    looked, trims = frees <= clock and frees > 0, true
  else
    looked = true
  end
end
