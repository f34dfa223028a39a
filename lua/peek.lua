--[[ peek: the state of logs, after state.lua.
  Why a script: one time for all rules, and one round trip.
  KEYS[b]  window log of bucket b (one slot)
  ARGV     as for state
  Output   {now, then the state}; {-1, now} if now is outside a calendar unit that the caller sent
]]
return state(0, { clock }) or { -1, clock }
