-- SPDX-License-Identifier: MIT
--
-- What people build by hand in front of a service today: nginx's Lua and Redis. SET NX takes the key, the request
-- goes on to the service, and its answer is stored under the key before it is passed back. A key that is taken is
-- answered with what is stored, or with 409 while the first request runs. The body must be the same (SHA-1).
local redis = require "nginx.redis"

local LIFE_S = 86400
local IDLE_MS, IDLE_CONNECTIONS = 60000, 512
local port = tonumber(ngx.var.redis_port)

local function refuse(status, why)
    ngx.status = status
    ngx.header["Content-Type"] = "text/plain"
    ngx.print(why)
    return ngx.exit(status)
end

ngx.req.read_body()
local body = ngx.req.get_body_data() or ""
local key = ngx.var.http_idempotency_key
if not key then
    return refuse(400, "a key is missing\n")
end
local print = ngx.encode_base64(ngx.sha1_bin(ngx.var.request_uri .. "\n" .. body))

local store = redis:new()
store:set_timeout(20000)
local ok, err = store:connect("127.0.0.1", port)
if not ok then
    return refuse(503, "no store: " .. err .. "\n")
end

local taken
taken, err = store:set(key, print, "NX", "EX", LIFE_S)
if err then
    return refuse(503, "no claim: " .. err .. "\n")
end
if taken == ngx.null then
    local stored = store:get(key)
    store:set_keepalive(IDLE_MS, IDLE_CONNECTIONS)
    if not stored or stored == ngx.null then
        return refuse(503, "no answer of the store\n")
    end
    if stored:sub(1, #print) ~= print then
        return refuse(422, "this key was used with another body\n")
    end
    local status, kind, first = stored:match("^[^\n]*\n(%d+)\n([^\n]*)\n(.*)$")
    if not status then
        return refuse(409, "this key's request still runs\n")
    end
    ngx.status = tonumber(status)
    ngx.header["Content-Type"] = kind
    ngx.header["Content-Length"] = #first
    ngx.header["Idempotent-Replayed"] = "true"
    return ngx.print(first)
end

local answer = ngx.location.capture("/upstream" .. ngx.var.request_uri, {
    method = ngx.HTTP_POST, body = body,
})
local kind = answer.header["Content-Type"] or ""
ok, err = store:set(key, print .. "\n" .. answer.status .. "\n" .. kind .. "\n" .. answer.body, "EX", LIFE_S)
if not ok then
    return refuse(503, "the ending was not stored: " .. err .. "\n")
end
store:set_keepalive(IDLE_MS, IDLE_CONNECTIONS)
ngx.status = answer.status
ngx.header["Content-Type"] = kind
ngx.header["Content-Length"] = #answer.body
ngx.print(answer.body)
