#pragma once

#include <string_view>
#include <vector>

#include "server/http/http_route.h"

namespace tandem {

// The page that browsers show for "/" (docs/web_page.md), the one for "/status" (docs/status_page.md), and
// their files. At "/", a client that does not accept HTML, as curl, gets a text that names `others`: what
// else is served on the same port.
std::vector<HttpRoute> PageRoutes(std::string_view model, const std::vector<HttpRoute>& others);

}  // namespace tandem
