#!lua name=frenzy1
--[[
Every change of Frenzy's state. `tables.py` says the same in Python; the contract tests compare.
`upkeep.lua`, `secrets.lua`, `decisions.lua` and `keeper.lua` go on with this library: one text for
the server.

A record is a hash of JSON texts by field. Texts that came from Python are stored and passed on as
they are: Lua reads the few fields it decides by, and never writes a number it has parsed, so
nothing loses precision. A change checks everything before its first write: it happens whole or not
at all. Time is the server's and only sets deadlines and timestamps; order comes from counters.

Keys, all under {frenzy}: so that they share one hash slot:
  job:<id> node:<id>              hash    record
  spec:<id> plans:<id> pending:<id>  string  JSON
  timeline:<id> series:<id>       list    JSON, bounded
  arrivals                        string  counter: a job's `sequence`
  jobs project:<p> state:<S>      zset    job ids by sequence; state:QUEUED is the queue
  unfinished:<p>                  set     what the quota counts
  quota:<p>                       string  limit of unfinished jobs, kept by `decisions.lua`
  usage:all                       string  JSON: what projects have had, for the fair share
  secrets                         set     projects that have secrets
  secrets:<p>                     hash    name -> JSON, sealed
  idem:<p>:<key>                  string  "<body sha256> <job>", expires
  nodes                           set     node ids
  devices:<node>                  set     device ids of the last registration
  device                          hash    "<node>/<device>" -> owner
  timer                           zset    timer id by due time, ms
  lease:<name>                    string  holder, expires
  outbox                          stream  messages; outbox:state: hash cursor, posted, published
  runs                            zset    groups of noted runs by their last change
  runs:<group>                    list    "<run id> <JSON>", bounded; runs_revision: counter
  op:<id>                         string  the answer of a call that took effect, expires
]]

local VERSION = 6 -- read by the services before they load or use the library
local P = '{frenzy}:'
local OP_MEMO_S = 86400
local IDEMPOTENCY_S = 2592000
local TIMELINE_KEEP = 1000

local TERMINAL = {SUCCEEDED = true, FAILED = true, CANCELLED = true}
local OWNS_NOTHING = {SUBMITTED = true, QUEUED = true,
                      SUCCEEDED = true, FAILED = true, CANCELLED = true}

-- Small words ---------------------------------------------------------------------------------

local function call(...)
  return redis.call(...)
end

local function answer(status, version, id, detail, epoch)
  return {status, version or 0, id or '', detail or '', epoch or 0}
end

local function now_ms()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function int(number)
  return string.format('%d', number)
end

local function parsed(text)
  return cjson.decode('[' .. text .. ']')[1]
end

local function field(key, name)
  local text = call('HGET', key, name)
  return text and parsed(text)
end

local function starts_with(text, prefix)
  return text:sub(1, #prefix) == prefix
end

local function set_fields(key, fields)
  for name, text in pairs(fields) do
    call('HSET', key, name, text)
  end
end

-- Run `action` unless the operation already took effect; then repeat its answer.
local function once(op, keep_s, action)
  local key = P .. 'op:' .. op
  local memo = call('GET', key)
  if memo then
    return cjson.decode(memo)
  end
  local result = action()
  if result[1] == 'OK' or result[1] == 'EXISTS' then
    call('SET', key, cjson.encode(result), 'EX', keep_s)
  end
  return result
end

-- What every change leaves behind -------------------------------------------------------------

local function record_text(flat)
  local parts = {}
  for i = 1, #flat, 2 do
    parts[#parts + 1] = cjson.encode(flat[i]) .. ':' .. flat[i + 1]
  end
  return '{' .. table.concat(parts, ',') .. '}'
end

local function post_record(about, messages, traceparent, now)
  local gen = call('HGET', P .. 'history', 'gen') or ''
  for i, message in ipairs(messages) do
    local number = call('HINCRBY', P .. 'outbox:state', 'posted', 1)
    call('XADD', P .. 'outbox', '*', 'number', number,
      'message_id', about.id .. ':' .. about.version .. ':' .. (i - 1),
      'subject', message.subject, 'type', message.type, 'entity', about.entity,
      'version', about.version, 'time_ms', int(now), 'data', message.data,
      'record', about.record, 'traceparent', traceparent, 'history', gen .. ':' .. number)
  end
end

local function post(entity, messages, traceparent, now)
  if #messages == 0 then
    return
  end
  local key = P .. entity
  if traceparent == '' then
    traceparent = field(key, 'traceparent') or ''
  end
  post_record({entity = entity, id = field(key, 'id'), version = call('HGET', key, 'version'),
               record = record_text(call('HGETALL', key))}, messages, traceparent, now)
end

local function tell(job, now)
  local key = P .. 'job:' .. job
  local parts = {'"time_ms":' .. int(now)}
  for _, name in ipairs({'version', 'state', 'reason', 'message', 'attempt'}) do
    parts[#parts + 1] = '"' .. name .. '":' .. call('HGET', key, name)
  end
  local timeline = P .. 'timeline:' .. job
  call('RPUSH', timeline, '{' .. table.concat(parts, ',') .. '}')
  call('LTRIM', timeline, -TIMELINE_KEEP, -1)
end

local function index(job, before, after, now)
  local key = P .. 'job:' .. job
  local sequence, project = call('HGET', key, 'sequence'), field(key, 'project')
  if before then
    call('ZREM', P .. 'state:' .. before, job)
  end
  call('ZADD', P .. 'state:' .. after, sequence, job)
  if TERMINAL[after] then
    call('ZADD', P .. 'finished', int(now), job)
    call('SREM', P .. 'unfinished:' .. project, job)
  else
    call('SADD', P .. 'unfinished:' .. project, job)
  end
end

-- A device that its node no longer has is forgotten once free.
local function set_owner(device, owner)
  local node, name = device:match('^([^/]*)/(.*)$')
  if owner == '' and call('SISMEMBER', P .. 'devices:' .. node, name) == 0 then
    call('HDEL', P .. 'device', device)
  else
    call('HSET', P .. 'device', device, owner)
  end
end

-- submit --------------------------------------------------------------------------------------

local function repeated(request, idem)
  local earlier = call('GET', idem)
  if earlier then
    local sha256, job = earlier:match('^(%S*) (.*)$')
    local version = tonumber(call('HGET', P .. 'job:' .. job, 'version'))
    if sha256 == request.body_sha256 then
      return answer('EXISTS', version, job)
    end
    return answer('CONFLICT', version, job, 'the key came with another body')
  end
  local version = call('HGET', P .. 'job:' .. request.id, 'version')
  if version then
    return answer('CONFLICT', tonumber(version), request.id, 'the job id is in use')
  end
  return nil
end

local function over_quota(project)
  local limit = call('GET', P .. 'quota:' .. project)
  local unfinished = call('SCARD', P .. 'unfinished:' .. project)
  if limit and unfinished >= tonumber(limit) then
    return answer('QUOTA', 0, '', int(unfinished) .. ' of ' .. limit .. ' unfinished jobs')
  end
  return nil
end

local function submit(request)
  local idem = P .. 'idem:' .. request.project .. ':' .. request.key
  local refusal = repeated(request, idem) or over_quota(request.project)
  if refusal then
    return refusal
  end
  local now, job, key = now_ms(), request.id, P .. 'job:' .. request.id
  local sequence = call('INCR', P .. 'arrivals')
  call('SET', idem, request.body_sha256 .. ' ' .. job, 'EX', IDEMPOTENCY_S)
  call('HSET', P .. 'keys', job, request.project .. ':' .. request.key)
  set_fields(key, request.record)
  call('HSET', key, 'sequence', sequence, 'created_ms', int(now), 'updated_ms', int(now))
  call('SET', P .. 'spec:' .. job, request.spec)
  call('ZADD', P .. 'jobs', sequence, job)
  call('ZADD', P .. 'project:' .. request.project, sequence, job)
  index(job, nil, field(key, 'state'), now)
  tell(job, now)
  post('job:' .. job, request.outbox, request.traceparent, now)
  return answer('OK', 1, job)
end

-- apply ---------------------------------------------------------------------------------------

local function lease_lost(lease)
  if not lease then
    return nil
  end
  local present = call('GET', P .. 'lease:' .. lease.name)
  if present == lease.holder then
    return nil
  end
  return answer('LEASE', 0, '', lease.name .. ' is held by ' .. (present or 'nobody'))
end

local function unexpected(request, version, state)
  for _, expected in ipairs(request.expect) do
    local present = call('HGET', P .. request.entity, expected.field)
    if tonumber(present) ~= expected.value then
      return answer(expected.status, version, '', expected.field .. ' is ' .. present)
    end
  end
  for _, allowed in ipairs(request.allowed_from) do
    if allowed == state then
      return nil
    end
  end
  if #request.allowed_from > 0 then
    return answer('BAD_STATE', version, '', 'state is ' .. state)
  end
  return nil
end

local function node_problem(name, epoch)
  local key = P .. 'node:' .. name
  local state = field(key, 'state')
  if not state then
    return 'node ' .. name .. ' is unknown'
  end
  if state ~= 'UP' then
    return 'node ' .. name .. ' is ' .. state
  end
  local present = call('HGET', key, 'epoch')
  if tonumber(present) ~= epoch then
    return 'node ' .. name .. ' has epoch ' .. present
  end
  return nil
end

-- Who owns a device after what the present call has decided so far; nil: no such device.
local function owner_of(device, owners)
  return owners[device] or call('HGET', P .. 'device', device) or nil
end

local function claim(request, version, owners)
  for _, wanted in ipairs(request.claims) do
    local problem = node_problem(wanted.node, wanted.epoch)
    if problem then
      return answer('NODE_EPOCH', version, '', problem)
    end
    local device = wanted.node .. '/' .. wanted.device
    local owner = owner_of(device, owners)
    if not owner then
      return answer('TAKEN', version, '', device .. ' is unknown')
    elseif owner ~= '' then
      return answer('TAKEN', version, '', device .. ' is held by ' .. owner)
    end
    owners[device] = request.id .. '#' .. (request.claim_attempt or request.patch.attempt)
  end
  return nil
end

-- Returns how many of the job's devices the releases give up.
local function release(request, owners)
  local count = 0
  for _, given in ipairs(request.releases) do
    local device = given.node .. '/' .. given.device
    if owner_of(device, owners) == given.token then
      owners[device] = given.to
      if given.token ~= '' and not starts_with(given.token, '!quarantine:') then
        count = count + 1
      end
    end
  end
  return count
end

local function write(request, version, before, owned, now)
  local key = P .. request.entity
  if request.kind == 'job' then
    call('HSET', key, 'owned_devices', int(owned))
  end
  if next(request.patch) == nil then
    return version
  end
  set_fields(key, request.patch)
  call('HSET', key, 'version', int(version + 1), 'updated_ms', int(now))
  local after = field(key, 'state')
  if after ~= before and request.kind == 'job' then
    index(request.id, before, after, now)
    tell(request.id, now)
  end
  return version + 1
end

local function write_beside(request, now)
  for _, document in ipairs(request.documents) do
    if document.text then
      call('SET', P .. document.name .. ':' .. request.id, document.text)
    else
      call('DEL', P .. document.name .. ':' .. request.id)
    end
  end
  for _, timer in ipairs(request.clear_timers) do
    call('ZREM', P .. 'timer', timer)
  end
  for _, timer in ipairs(request.set_timers) do
    call('ZADD', P .. 'timer', int(now + timer.after_ms), timer.id)
  end
end

local function apply(request)
  local key = P .. request.entity
  local refusal = lease_lost(request.lease)
  if refusal then
    return refusal
  end
  local version, state = tonumber(call('HGET', key, 'version') or nil), field(key, 'state')
  if not version then
    return answer('NOT_FOUND', 0, '', request.entity)
  end
  local owners = {}
  refusal = unexpected(request, version, state) or claim(request, version, owners)
  if refusal then
    return refusal
  end
  local owned = tonumber(call('HGET', key, 'owned_devices') or 0) + #request.claims
  owned = owned - release(request, owners)
  local after = request.patch.state and parsed(request.patch.state) or state
  if owned > 0 and OWNS_NOTHING[after] then
    return answer('BAD_STATE', version, '', after .. ' while ' .. int(owned) .. ' devices are owned')
  end
  local now = now_ms()
  version = write(request, version, state, owned, now)
  for device, owner in pairs(owners) do
    set_owner(device, owner)
  end
  write_beside(request, now)
  post(request.entity, request.outbox, request.traceparent, now)
  return answer('OK', version)
end

-- register_node -------------------------------------------------------------------------------

local function take_inventory(request, rebooted)
  local present, prefix = P .. 'devices:' .. request.id, request.id .. '/'
  call('DEL', present)
  for _, device in ipairs(request.devices) do
    call('SADD', present, device)
    call('HSETNX', P .. 'device', prefix .. device, '')
  end
  local flat = call('HGETALL', P .. 'device')
  for i = 1, #flat, 2 do
    local device, owner = flat[i], flat[i + 1]
    if starts_with(device, prefix) then
      local lifted = rebooted and starts_with(owner, '!quarantine:lost')
      set_owner(device, lifted and '' or owner)
    end
  end
end

local function register_node(request)
  local key, now = P .. 'node:' .. request.id, now_ms()
  local boot_id = call('HGET', key, 'boot_id')
  local rebooted = boot_id and boot_id ~= request.record.boot_id
  if not boot_id then -- above all that a forgotten node of this name had
    for _, name in ipairs({'epoch', 'version'}) do
      call('HSET', key, name, call('HGET', P .. 'gone', name) or 0)
    end
  end
  set_fields(key, request.record)
  local epoch = call('HINCRBY', key, 'epoch', 1)
  if epoch < (request.least_epoch or 0) then -- an older service does not send it
    epoch = request.least_epoch
    call('HSET', key, 'epoch', int(epoch))
  end
  local version = call('HINCRBY', key, 'version', 1)
  call('HSET', key, 'updated_ms', int(now))
  call('SADD', P .. 'nodes', request.id)
  take_inventory(request, rebooted)
  post('node:' .. request.id, request.outbox, request.traceparent, now)
  return answer('OK', version, request.id, '', epoch)
end

-- Registration --------------------------------------------------------------------------------
-- `allow-oom`: what runs must be able to finish when memory is full; only new jobs are refused.

local function register(name, flags, callback)
  redis.register_function{function_name = 'frenzy1_' .. name, callback = callback, flags = flags}
end

local function register_change(name, flags, change)
  register(name, flags, function(_, args)
    local request = cjson.decode(args[2])
    return once(args[1], OP_MEMO_S, function() return change(request) end)
  end)
end

-- In safe mode (see keeper.lua) what the store says is not to be built upon.
local function unless_safe_mode(change)
  return function(request)
    local why = call('GET', P .. 'safe_mode')
    return why and answer('SAFE_MODE', 0, '', why) or change(request)
  end
end

register_change('submit', {}, unless_safe_mode(submit))
register_change('apply', {'allow-oom'}, unless_safe_mode(apply))
register_change('register_node', {'allow-oom'}, register_node)
