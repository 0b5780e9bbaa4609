#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "server/access/access_control.h"
#include "server/http/http_message.h"

namespace tandem {

// For HttpServerOptions::authorize: lets GET and HEAD of `open_paths` through and asks for a key for all
// else, in the headers that clients of OpenAI's and of Anthropic's API send; /metrics, /status.json and
// /explain need the scope admin. The tenant of the key becomes the request's. `access` outlives what is returned.
std::function<std::optional<HttpResponse>(HttpRequest&)> HttpAuthorizer(
    AccessControl& access, std::set<std::string> open_paths);

}  // namespace tandem
