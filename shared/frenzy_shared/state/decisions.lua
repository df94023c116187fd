--[[
What administrators decide for the whole cluster: API tokens, and what projects may use. Texts are
stored as they came. A decision that is announced gets the next number of all decisions as its
version; a store that is rebuilt gets the newest of each thing back from its announcement.

  token:<id>       string  JSON
  tokens           hash    token id -> when it was last used, ms; 0: never
  projects         hash    name -> JSON; quota:<p> beside it is what `submit` looks at
  decisions        string  counter: the number of the newest decision
]]

local function keep_token(id, text)
  call('SET', P .. 'token:' .. id, text)
  call('HSETNX', P .. 'tokens', id, '0')
end

local function drop_token(id)
  call('HDEL', P .. 'tokens', id)
  return call('DEL', P .. 'token:' .. id)
end

local function keep_project(name, text, limit)
  call('HSET', P .. 'projects', name, text)
  if limit then
    call('SET', P .. 'quota:' .. name, int(limit))
  else
    call('DEL', P .. 'quota:' .. name)
  end
end

local function announce(entity, request)
  if #request.outbox == 0 then
    return answer('OK')
  end
  local version = call('INCR', P .. 'decisions')
  local record = '{"version":' .. int(version) .. ',' .. request.record:sub(2)
  post_record({entity = entity, id = entity, version = version, record = record}, request.outbox,
    request.traceparent, now_ms())
  return answer('OK', version)
end

-- Without a message nobody decided anything: an operator's setting is stored at each start.
local function refused(request)
  local why = #request.outbox > 0 and call('GET', P .. 'safe_mode')
  return why and answer('SAFE_MODE', 0, '', why)
end

local function put_token(request)
  local refusal = refused(request)
  if refusal then
    return refusal
  end
  keep_token(request.id, request.text)
  return announce('token:' .. request.id, request)
end

local function delete_token(request)
  local refusal = refused(request)
  if refusal then
    return refusal
  elseif drop_token(request.id) == 0 then
    return answer('NOT_FOUND', 0, '', 'token:' .. request.id)
  end
  return announce('token:' .. request.id, request)
end

local function put_project(request)
  local refusal = refused(request)
  if refusal then
    return refusal
  end
  keep_project(request.id, request.text, request.limit)
  return announce('project:' .. request.id, request)
end

local function tokens()
  local found, flat = {}, call('HGETALL', P .. 'tokens')
  for i = 1, #flat, 2 do
    local text = call('GET', P .. 'token:' .. flat[i])
    if text then
      found[#found + 1] = {text, flat[i + 1]}
    end
  end
  return found
end

-- One that was stored before there was a list of all gets into it by being used.
local function use_token(id, at_ms)
  if call('EXISTS', P .. 'token:' .. id) == 1 then
    call('HSET', P .. 'tokens', id, at_ms)
  end
  return 0
end

local RESTORE_DECISION = {
  token = function(entry)
    if entry.text then
      keep_token(entry.id, entry.text)
    else
      drop_token(entry.id)
    end
  end,
  project = function(entry) keep_project(entry.id, entry.text, entry.limit) end,
}

-- What a store counted up to a number it also has: only later decisions are missing in it.
local function restore_decisions(entries)
  local known = tonumber(call('GET', P .. 'decisions') or 0)
  local newest = known
  for _, entry in ipairs(entries) do
    if entry.version > known then
      RESTORE_DECISION[entry.kind](entry)
      newest = math.max(newest, entry.version)
    end
  end
  if newest > known then
    call('SET', P .. 'decisions', int(newest))
  end
end

local function register_decision(name, change)
  register(name, {}, function(_, args)
    local request = cjson.decode(args[2])
    return once(args[1], CALL_MEMO_S, function() return change(request) end)
  end)
end

register_decision('put_token', put_token)
register_decision('delete_token', delete_token)
register_decision('put_project', put_project)
register('tokens', {'no-writes'}, tokens)
register('use_token', {}, function(_, args) return use_token(args[1], args[2]) end)
