--[[ swap: replaces the document that the caller has seen, and announces it.
  Why a script: between the check and the write another instance may write.
  KEYS[1]  the document; no expiry
  ARGV     the SHA-1 of the document that was seen, in hex, or empty if there was none;
           the new document; the channel on which it is announced
  Output   1 done; 0 another document is there, and nothing was written
  Edges    a value that is not a string is an error, and stays
]]
local stands = redis.call('GET', KEYS[1])
if (stands and redis.sha1hex(stands) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('PUBLISH', ARGV[3], '')
return 1
