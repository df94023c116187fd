--[[
The rest of the library that `functions.lua` begins: timers, leases, the outbox's upkeep, series,
noted runs and the snapshot. Nothing here changes a job's or a node's record.
]]

local CALL_MEMO_S = 60 -- for calls that only the client library repeats
local TIMER_REPEAT_MS = 30000
local OUTBOX_KEEP_MS = 86400000

local function due(limit)
  local now = now_ms()
  local timers = call('ZRANGEBYSCORE', P .. 'timer', '-inf', int(now), 'LIMIT', 0, limit)
  for _, timer in ipairs(timers) do
    call('ZADD', P .. 'timer', int(now + TIMER_REPEAT_MS), timer)
  end
  return {'OK', timers}
end

local function acquire_lease(name, holder, ttl_ms, renew)
  local key = P .. 'lease:' .. name
  local present = call('GET', key)
  if present ~= holder and (present or renew == '1') then
    return 0
  end
  call('SET', key, holder, 'PX', ttl_ms)
  return 1
end

local function release_lease(name, holder)
  local key = P .. 'lease:' .. name
  if call('GET', key) == holder then
    call('DEL', key)
  end
  return 0
end

local function split_cursor(cursor)
  local time, number = cursor:match('^(%d+)-(%d+)$')
  return tonumber(time), tonumber(number)
end

local function later(a, b)
  local a_time, a_number = split_cursor(a)
  local b_time, b_number = split_cursor(b)
  return a_time > b_time or (a_time == b_time and a_number > b_number)
end

local function advance_outbox(cursor)
  local outbox, state = P .. 'outbox', P .. 'outbox:state'
  local present = call('HGET', state, 'cursor') or '0-0'
  if later(cursor, present) then
    call('HSET', state, 'cursor', cursor)
    local entry = call('XRANGE', outbox, cursor, cursor)[1]
    if entry then
      call('HSET', state, 'published', entry[2][2]) -- the first field is `number`
    end
    present = cursor
  end
  local time, number = split_cursor(present)
  local oldest, kept_from = int(now_ms() - OUTBOX_KEEP_MS) .. '-0', int(time) .. '-' .. int(number + 1)
  call('XTRIM', outbox, 'MINID', later(oldest, kept_from) and kept_from or oldest)
  return 0
end

local function append_series(job, keep, points)
  local key = P .. 'series:' .. job
  for _, point in ipairs(points) do
    call('RPUSH', key, point)
  end
  call('LTRIM', key, -tonumber(keep), -1)
  return {'OK'}
end

-- A finished attempt, once: a group keeps its newest runs, and the newest groups stay.
local function note_run(group, id, keep, groups, text)
  local index, key = P .. 'runs', P .. 'runs:' .. group
  for _, run in ipairs(call('LRANGE', key, 0, -1)) do
    if starts_with(run, id .. ' ') then
      return 0
    end
  end
  call('RPUSH', key, id .. ' ' .. text)
  call('LTRIM', key, -tonumber(keep), -1)
  call('ZADD', index, int(call('INCR', P .. 'runs_revision')), group)
  local excess = call('ZCARD', index) - tonumber(groups)
  if excess > 0 then
    local dropped = call('ZPOPMIN', index, excess)
    for i = 1, #dropped, 2 do
      call('DEL', P .. 'runs:' .. dropped[i])
    end
  end
  return 1
end

-- Reading. A record goes out as one JSON text: a field each would cost the client far more.
local function records(entities)
  local found = {}
  for i, entity in ipairs(entities) do
    found[i] = record_text(call('HGETALL', P .. entity))
  end
  return found
end

-- All nodes and owners at one moment.
local function cluster()
  local nodes = {}
  for i, node in ipairs(call('SMEMBERS', P .. 'nodes')) do
    nodes[i] = record_text(call('HGETALL', P .. 'node:' .. node))
  end
  return {nodes, call('HGETALL', P .. 'device')}
end

register('records', {'no-writes'}, function(_, args) return records(args) end)
register('cluster', {'no-writes'}, cluster)
register('due', {'allow-oom'}, function(_, args)
  return once(args[1], CALL_MEMO_S, function() return due(args[2]) end)
end)
register('acquire_lease', {'allow-oom'}, function(_, args)
  return acquire_lease(args[1], args[2], args[3], args[4])
end)
register('release_lease', {'allow-oom'}, function(_, args)
  return release_lease(args[1], args[2])
end)
register('advance_outbox', {'allow-oom'}, function(_, args)
  return advance_outbox(args[1])
end)
register('note_run', {}, function(_, args)
  return note_run(args[1], args[2], args[3], args[4], args[5])
end)
register('append_series', {}, function(_, args)
  return once(args[1], CALL_MEMO_S, function()
    return append_series(args[2], args[3], cjson.decode(args[4]))
  end)
end)
