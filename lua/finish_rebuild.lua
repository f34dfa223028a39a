--[[ finish_rebuild: marks the windows as complete, if the server lost nothing in the meantime.
  Why a script: between the check and the write the server may lose its data again.
  KEYS[1]  the mark; it is lost with the rest of its server's data, or if it is not looked at for its life
  KEYS[2]  the key that this rebuild wrote when it began: the history of writes that it began in (40 digits), and how
           many keys had been evicted by then
  KEYS[3]  the key that says how many that was
  ARGV     the id of the rebuild, and the shape in which the windows are complete; the life of the mark in ms, 0 for ever
  Output   {1} marked; {0} the data was lost since the rebuild began, and nothing was written
  Edges    what was evicted since it began is noticed by whoever compares KEYS[3] with the server
]]
local begun = redis.call('GET', KEYS[2])
if not begun then return { 0 } end
redis.call('SET', KEYS[1], ARGV[1] .. string.sub(begun, 1, 40))
if ARGV[2] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
redis.call('SET', KEYS[3], string.sub(ARGV[1], 1, 6) .. string.sub(begun, 41))
redis.call('DEL', KEYS[2])
return { 1 }
