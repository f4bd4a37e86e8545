local redis = (function(server)
  -- Counts the records that each command touches, in the hash {touched}: of the reply, of the arguments, and of what is removed.
  local function leaves(x)
    if type(x) ~= 'table' then return 1 end
    local n = 0
    for _, y in ipairs(x) do n = n + leaves(y) end
    return n
  end
  local function size(key)
    local kind = server.call('TYPE', key).ok
    return kind == 'hash' and server.call('HLEN', key) or kind == 'zset' and server.call('ZCARD', key) or
      kind == 'list' and server.call('LLEN', key) or kind == 'set' and server.call('SCARD', key) or
      kind == 'stream' and server.call('XLEN', key) or 1
  end
  local pairs_of = {HGETALL = true, HSCAN = true, HSET = true, ZADD = true}
  local function counting(how)
    return function(name, ...)
      local args, n = {...}, 0
      if name == 'DEL' then
        for _, key in ipairs(args) do n = n + size(key) end
      elseif name == 'SET' and args[#args] ~= 'NX' or name == 'LREM' then
        n = size(args[1])
      end
      local reply = server[how](name, ...)
      local some = leaves(reply) + #args
      for _, word in ipairs(args) do
        if word == 'WITHSCORES' then some = some / 2 end
      end
      n = n + math.ceil(pairs_of[name] and some / 2 or some)
      if (string.find(name, '^ZREMRANGE') or name == 'XTRIM') and type(reply) == 'number' then n = n + reply end
      server.call('HINCRBY', '{touched}', name, n)
      return reply
    end
  end
  return {call = counting('call'), pcall = counting('pcall'), error_reply = server.error_reply, status_reply = server.status_reply,
    sha1hex = server.sha1hex}
end)(redis)
