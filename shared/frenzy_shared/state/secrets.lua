--[[
Secrets of projects, sealed: the store never has a key. Texts are passed on as they came.
]]

-- With `expected` only that very text is replaced: who seals anew must not undo another's change.
local function put_secret(project, name, text, expected)
  local key = P .. 'secrets:' .. project
  if expected ~= '' and call('HGET', key, name) ~= expected then
    return 0
  end
  call('HSET', key, name, text)
  call('SADD', P .. 'secrets', project)
  return 1
end

local function delete_secret(project, name)
  local key = P .. 'secrets:' .. project
  local found = call('HDEL', key, name)
  if call('EXISTS', key) == 0 then
    call('SREM', P .. 'secrets', project)
  end
  return found
end

register('put_secret', {}, function(_, args)
  return put_secret(args[1], args[2], args[3], args[4])
end)
register('delete_secret', {'allow-oom'}, function(_, args)
  return delete_secret(args[1], args[2])
end)
register('secrets', {'no-writes'}, function(_, args)
  return call('HVALS', P .. 'secrets:' .. args[1])
end)
register('secret_projects', {'no-writes'}, function()
  return call('SMEMBERS', P .. 'secrets')
end)
