-- Asks Gatehouse whether a request may pass, and who it is: HAProxy 2.6 has no forward authentication of its own.
-- For /etc/haproxy/gatehouse.lua, which the printed haproxy.cfg loads. Printed by: gatehouse gate print haproxy-lua

local gatehouse = "http://{{ it.gatehouse }}/api/authz/forward-auth"
local remote = { "remote-user", "remote-groups", "remote-name", "remote-email" }
-- Those by which it tells who asks, and what is answered to them.
local passed = { "cookie", "accept", "accept-language", "x-requested-with", "sec-fetch-mode", "upgrade", "user-agent" }
local answered = { "location", "content-type", "content-language", "content-security-policy", "cache-control" }

local function refuse(txn, status, response)
    local reply = txn:reply()
    reply:set_status(status)
    if response then
        for _, name in ipairs(answered) do
            for _, value in pairs(response.headers[name] or {}) do
                reply:add_header(name, value)
            end
        end
        reply:set_body(response.body or "")
    end
    txn:done(reply)
end

core.register_action("gatehouse", { "http-req" }, function(txn, host)
    local sent = txn.http:req_get_headers()
    local headers = {
        ["host"] = { host },
        ["x-forwarded-method"] = { txn.sf:method() },
        ["x-forwarded-proto"] = { "{{ it.scheme }}" },
        ["x-forwarded-host"] = { host },
        ["x-forwarded-uri"] = { txn.sf:pathq() },
        ["x-forwarded-for"] = { txn.sf:src() },
    }
    for _, name in ipairs(passed) do
        if sent[name] then
            local values = {}
            for _, value in pairs(sent[name]) do
                values[#values + 1] = value
            end
            headers[name] = values
        end
    end
    local response = core.httpclient():get { url = gatehouse, headers = headers, timeout = 5000 }
    if not response or not response.status or response.status == 0 then
        return refuse(txn, 503)
    end
    if response.status ~= 200 then
        return refuse(txn, response.status, response)
    end
    for _, name in ipairs(remote) do
        local value = response.headers[name] and response.headers[name][0]
        if value == nil then
            return refuse(txn, 503)
        end
        txn.http:req_set_header(name, value)
    end
end, 1)
