#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "server/access/access_control.h"
#include "server/http/http_message.h"

namespace tandem {

// Makes HttpServerOptions::authorize of a router: GET and HEAD of `open_paths` need no API key,
// everything else needs one, in the headers that clients of OpenAI's and of Anthropic's API send;
// /metrics, /status.json and /explain need the scope admin. The tenant of the key becomes that of
// the request. `access` must outlive the function that is returned.
std::function<std::optional<HttpResponse>(HttpRequest&)> HttpAuthorizer(
    AccessControl& access, std::set<std::string> open_paths);

}  // namespace tandem
