--[[ swap: puts a document in the place of the one that the caller has seen, and tells who listens.
  Why a script: between the look and the write another instance may write.
  KEYS[1]  the document; no expiry
  ARGV     the SHA-1 of the document that was seen, in hex, or nothing where there was none;
           the document that is to stand there; the channel that it is announced on
  Output   1 done; 0 another document stands there, and nothing was written
  Edges    what is no string is an error, and stays
]]
local stands = redis.call('GET', KEYS[1])
if (stands and redis.sha1hex(stands) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('PUBLISH', ARGV[3], '')
return 1
