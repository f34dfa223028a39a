--[[ finish_rebuild: says that everything was written back, if nothing was lost meanwhile.
  Why a script: between the look and the write the server may lose its data again.
  KEYS[1]  what says so; no expiry, so that it goes only with the rest of the data
  KEYS[2]  what this rebuild left when it began
  ARGV     the id of the rebuild, and the shape that it is whole in
  Output   {1} said; {0} the data was lost since it began, and nothing was written
]]
if redis.call('EXISTS', KEYS[2]) == 0 then return { 0 } end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2])
return { 1 }
