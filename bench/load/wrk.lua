-- One request after the other from a file of prepared targets, round robin; at the end one line of JSON.
-- Arguments after `--`: the file, which returns a list of {method, path, token, body, content type, other headers}.
local requests, count = {}, 0
local at = 0

function init(args)
  for i, t in ipairs(dofile(args[1])) do
    local headers = { ["Authorization"] = "Bearer " .. t[3] }
    if t[4] then headers["Content-Type"] = t[5] or "application/json" end
    for name, value in pairs(t[6]) do headers[name] = value end
    requests[i] = wrk.format(t[1], t[2], headers, t[4])
  end
  count = #requests
end

function request()
  at = at % count + 1
  return requests[at]
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '{"requests":%d,"seconds":%.6f,"unsuccessful":%d,"broken":%d,"p50Us":%d,"p99Us":%d,"maxUs":%d}\n',
    summary.requests, summary.duration / 1e6, e.status, e.connect + e.read + e.write + e.timeout,
    latency:percentile(50), latency:percentile(99), latency.max))
end
