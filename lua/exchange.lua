--[[ exchange: replaces a short text that the caller has seen.
  Why a script: between the read and the write another instance may write.
  KEYS[1]  the text
  ARGV     the text that was seen, or empty if there was none; the new text; its life in milliseconds
  Output   1 done; 0 another text is there, and nothing was written
  Edges    a value that is not a string is an error, and stays
]]
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
