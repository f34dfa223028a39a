--[[ finish_rebuild: marks the windows as complete, if the server lost nothing in the meantime.
  Why a script: between the check and the write the server may lose its data again.
  KEYS[1]  the mark; no expiry, so that it is lost only with the rest of its server's data
  KEYS[2]  the key that this rebuild wrote when it began: the history of writes that it began in
  ARGV     the id of the rebuild, and the shape in which the windows are complete; the history follows them
  Output   {1} marked; {0} the data was lost since the rebuild began, and nothing was written
]]
local history = redis.call('GET', KEYS[2])
if not history then return { 0 } end
redis.call('SET', KEYS[1], ARGV[1] .. history)
redis.call('DEL', KEYS[2])
return { 1 }
