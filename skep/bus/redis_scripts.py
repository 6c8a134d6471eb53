"""The Lua scripts that Redis runs for the lanes. Each script is atomic.

Only text; `redis.py` sends it. Keys of the lanes, all in one hash slot: `blocks` (hash: id to
entry, a msgpack list of lane, size, target, ref), `counts` (hash: requests of each lane, and
`number`, incremented by every push) and one sorted set of ids per lane and target. A block's
score is its number at the tail and the negative at the head, so the smallest score over all
targets is the head of the lane.
"""

from __future__ import annotations

#: An entry that cannot be read was written by another program: it is dropped.
_READ = """
local function read(entry)
  local fine, block = pcall(cmsgpack.unpack, entry)
  if fine and type(block) == 'table' and tonumber(block[2]) then return block end
  return nil
end
"""

#: KEYS: blocks, counts, then one queue per block. ARGV: six values per block.
#: Returns the indexes (from 0) of the blocks that did not fit.
PUSH = """
local refused = {}
for i = 1, #KEYS - 2 do
  local at = (i - 1) * 6
  local id, lane, size = ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  local limit, head, entry = tonumber(ARGV[at + 4]), ARGV[at + 5] == '1', ARGV[at + 6]
  if redis.call('HEXISTS', KEYS[1], id) == 0 then
    local filled = tonumber(redis.call('HGET', KEYS[2], lane) or '0')
    if filled > 0 and filled + size > limit then
      refused[#refused + 1] = i - 1
    else
      local number = redis.call('HINCRBY', KEYS[2], 'number', 1)
      redis.call('ZADD', KEYS[i + 2], head and -number or number, id)
      redis.call('HSET', KEYS[1], id, entry)
      redis.call('HINCRBY', KEYS[2], lane, size)
    end
  end
end
return refused
"""

#: KEYS: blocks, counts, then the queues: all targets of the first lane, of the second...
#: ARGV: maximum blocks, number of targets, the lanes. Returns entries.
POP = (
    _READ
    + """
local limit, width = tonumber(ARGV[1]), tonumber(ARGV[2])
local entries = {}

local function first_of(queue)
  local pair = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
  return pair[1] and {id = pair[1], place = tonumber(pair[2]), queue = queue} or nil
end

local function take(block, lane)
  redis.call('ZREM', block.queue, block.id)
  local entry = redis.call('HGET', KEYS[1], block.id)
  local known = entry and read(entry)
  redis.call('HDEL', KEYS[1], block.id)
  if known then
    redis.call('HINCRBY', KEYS[2], lane, 0 - known[2])
    entries[#entries + 1] = entry
  end
end

for l = 1, #ARGV - 2 do
  local firsts, best = {}, nil
  for t = 1, width do
    firsts[t] = first_of(KEYS[2 + (l - 1) * width + t])
  end
  while #entries < limit do
    best = nil
    for t = 1, width do
      if firsts[t] and (not best or firsts[t].place < firsts[best].place) then best = t end
    end
    if not best then break end
    take(firsts[best], ARGV[l + 2])
    firsts[best] = first_of(firsts[best].queue)
  end
end
return entries
"""
)

#: KEYS: blocks, counts. ARGV: the start of a queue's name, then ids. Returns how many.
REMOVE = (
    _READ
    + """
local removed = 0
for i = 2, #ARGV do
  local entry = redis.call('HGET', KEYS[1], ARGV[i])
  local block = entry and read(entry)
  removed = removed + redis.call('HDEL', KEYS[1], ARGV[i])
  if block then
    redis.call('ZREM', ARGV[1] .. block[1] .. ':' .. block[3], ARGV[i])
    redis.call('HINCRBY', KEYS[2], block[1], 0 - block[2])
  end
end
return removed
"""
)

#: KEYS: blocks. ARGV: ids. Returns those that exist.
PRESENT = """
local found = {}
for i = 1, #ARGV do
  if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 then found[#found + 1] = ARGV[i] end
end
return found
"""

#: KEYS: blocks, counts, epoch. ARGV: the start of a queue's name, the new epoch.
CLEAR = (
    _READ
    + """
for _, entry in ipairs(redis.call('HVALS', KEYS[1])) do
  local block = read(entry)
  if block then redis.call('DEL', ARGV[1] .. block[1] .. ':' .. block[3]) end
end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('SET', KEYS[3], ARGV[2])
"""
)

#: KEYS: the lease. ARGV: holder, milliseconds. Returns 1 when the holder has it.
TURN = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
