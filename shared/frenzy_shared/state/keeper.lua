--[[
The third part of the library: what keeps the store itself right. Finished jobs are forgotten in
the end, and a history that went backwards is noticed and repaired.

  finished                        zset    job ids by the time they finished, ms
  keys                            hash    job id -> "<project>:<idempotency key>"
  history                         hash    gen: which life of the store this is
  safe_mode                       string  why nothing may change but by `restore`
  gone                            hash    epoch, version: the highest of all forgotten nodes
]]

local SIDE = {'spec', 'plans', 'pending', 'timeline', 'series'}

local function forget(job, expected, timers)
  local key = P .. 'job:' .. job
  local version, state = tonumber(call('HGET', key, 'version') or nil), field(key, 'state')
  if not version then
    return answer('NOT_FOUND', 0, '', 'job:' .. job)
  elseif version ~= expected then
    return answer('STALE', version, '', 'version is ' .. int(version))
  elseif not TERMINAL[state] then
    return answer('BAD_STATE', version, '', 'state is ' .. state)
  end
  local known = call('HGET', P .. 'keys', job)
  if known then
    call('DEL', P .. 'idem:' .. known)
    call('HDEL', P .. 'keys', job)
  end
  for _, index_key in ipairs({'jobs', 'finished', 'state:' .. state,
                              'project:' .. field(key, 'project')}) do
    call('ZREM', P .. index_key, job)
  end
  for _, timer in ipairs(timers) do
    call('ZREM', P .. 'timer', timer)
  end
  for _, name in ipairs(SIDE) do
    call('DEL', P .. name .. ':' .. job)
  end
  call('DEL', key)
  return answer('OK', version, job)
end

local function devices_of(node)
  local found, flat = {}, call('HGETALL', P .. 'device')
  for i = 1, #flat, 2 do
    if starts_with(flat[i], node .. '/') then
      found[flat[i]] = flat[i + 1]
    end
  end
  return found
end

local function raise_counter(key, name, floor)
  if tonumber(call('HGET', key, name) or 0) < floor then
    call('HSET', key, name, int(floor))
  end
end

local function forget_node(request)
  local key = P .. 'node:' .. request.id
  local version, state = tonumber(call('HGET', key, 'version') or nil), field(key, 'state')
  if not version then
    return answer('NOT_FOUND', 0, '', 'node:' .. request.id)
  elseif version ~= request.expect_version then
    return answer('STALE', version, '', 'version is ' .. int(version))
  elseif state ~= 'LOST' then
    return answer('BAD_STATE', version, '', 'state is ' .. state)
  end
  local devices = devices_of(request.id)
  for device, owner in pairs(devices) do
    if owner ~= '' then
      return answer('BAD_STATE', version, '', device .. ' is held by ' .. owner)
    end
  end
  call('HINCRBY', key, 'version', 1)
  post('node:' .. request.id, request.outbox, '', now_ms())
  raise_counter(P .. 'gone', 'epoch', tonumber(call('HGET', key, 'epoch')))
  raise_counter(P .. 'gone', 'version', version + 1)
  for device in pairs(devices) do
    call('HDEL', P .. 'device', device)
  end
  for _, timer in ipairs(request.timers) do
    call('ZREM', P .. 'timer', timer)
  end
  call('DEL', key, P .. 'devices:' .. request.id)
  call('SREM', P .. 'nodes', request.id)
  return answer('OK', version + 1, request.id)
end

-- The store's place in its own history; `gen` is given to a store that has none yet.
-- Services that do not ask for `decisions` are older and take three values.
local function history(gen, also)
  call('HSETNX', P .. 'history', 'gen', gen)
  local found = {call('HGET', P .. 'history', 'gen'),
                 tonumber(call('HGET', P .. 'outbox:state', 'posted') or 0),
                 call('GET', P .. 'safe_mode') or ''}
  if also == 'decisions' then
    found[4] = tonumber(call('GET', P .. 'decisions') or 0)
  end
  return found
end

local function unsafe(request)
  if not call('GET', P .. 'safe_mode') then
    return answer('BAD_STATE', 0, '', 'the store is not in safe mode')
  end
  return lease_lost(request.lease)
end

local function restore_job(entry, now)
  local key, job = P .. 'job:' .. entry.id, entry.id
  local before = field(key, 'state')
  call('DEL', key)
  set_fields(key, entry.record)
  local sequence, project = tonumber(entry.record.sequence), field(key, 'project')
  call('ZADD', P .. 'jobs', sequence, job)
  call('ZADD', P .. 'project:' .. project, sequence, job)
  call('ZREM', P .. 'finished', job)
  index(job, before, field(key, 'state'), tonumber(call('HGET', key, 'updated_ms')))
  if tonumber(call('GET', P .. 'arrivals') or 0) < sequence then
    call('SET', P .. 'arrivals', int(sequence))
  end
  if entry.spec then
    call('SET', P .. 'spec:' .. job, entry.spec)
  end
  if entry.plans then
    call('SET', P .. 'plans:' .. job, entry.plans)
  end
  if #entry.timeline > 0 then
    call('DEL', P .. 'timeline:' .. job)
    call('RPUSH', P .. 'timeline:' .. job, unpack(entry.timeline))
  end
  post('job:' .. job, entry.outbox, '', now)
end

local function restore_node(entry, now)
  local key, present = P .. 'node:' .. entry.id, P .. 'devices:' .. entry.id
  call('DEL', key, present)
  set_fields(key, entry.record)
  call('SADD', P .. 'nodes', entry.id)
  if #entry.devices > 0 then
    call('SADD', present, unpack(entry.devices))
  end
  post('node:' .. entry.id, entry.outbox, '', now)
end

-- Write records as they were, while nothing else may change.
local function restore(request)
  local refusal = unsafe(request)
  if refusal then
    return refusal
  end
  local now = now_ms()
  call('HSET', P .. 'history', 'gen', request.gen)
  raise_counter(P .. 'outbox:state', 'posted', request.posted)
  raise_counter(P .. 'outbox:state', 'published', request.posted)
  for _, entry in ipairs(request.jobs) do
    restore_job(entry, now)
  end
  for _, entry in ipairs(request.nodes) do
    restore_node(entry, now)
  end
  restore_decisions(request.decisions or {}) -- an older service does not send them
  return answer('OK')
end

-- Put every owner and timer right at one moment, and let changes happen again.
local function leave_safe_mode(request)
  local refusal = unsafe(request)
  if refusal then
    return refusal
  end
  local now = now_ms()
  call('DEL', P .. 'device', P .. 'safe_mode')
  for device, owner in pairs(request.owners) do
    call('HSET', P .. 'device', device, owner)
  end
  for _, timer in ipairs(request.timers) do
    call('ZADD', P .. 'timer', int(now + timer.after_ms), timer.id)
  end
  return answer('OK')
end

register('oldest_finished', {'no-writes'}, function(_, args)
  local found = {}
  for i, job in ipairs(call('ZRANGEBYSCORE', P .. 'finished', '-inf', '+inf', 'LIMIT', 0, args[1])) do
    found[i] = record_text(call('HGETALL', P .. 'job:' .. job))
  end
  return found
end)
register('forget', {'allow-oom'}, function(_, args)
  return once(args[1], CALL_MEMO_S, function()
    return forget(args[2], tonumber(args[3]), cjson.decode(args[4]))
  end)
end)
register_change('forget_node', {'allow-oom'}, unless_safe_mode(forget_node))
register('gone_epoch', {'no-writes'}, function()
  return tonumber(call('HGET', P .. 'gone', 'epoch') or 0)
end)
register('history', {'allow-oom'}, function(_, args)
  return history(args[1], args[2])
end)
register('enter_safe_mode', {'allow-oom'}, function(_, args)
  call('SET', P .. 'safe_mode', args[1])
  return 0
end)
register('restore', {'allow-oom'}, function(_, args)
  local request = cjson.decode(args[2])
  return once(args[1], OP_MEMO_S, function() return restore(request) end)
end)
register('leave_safe_mode', {'allow-oom'}, function(_, args)
  local request = cjson.decode(args[2])
  return once(args[1], OP_MEMO_S, function() return leave_safe_mode(request) end)
end)
