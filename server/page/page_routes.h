#pragma once

#include <string_view>
#include <vector>

#include "server/http/http_route.h"

namespace tandem {

// The routes of the page that browsers show for "/" (docs/web_page.md), of the one for "/status"
// (docs/status_page.md), and of their files. A client that does not accept HTML at "/", such as
// curl, gets a text that lists `others`, the other routes of the same port.
std::vector<HttpRoute> PageRoutes(std::string_view model, const std::vector<HttpRoute>& others);

}  // namespace tandem
