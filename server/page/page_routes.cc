#include "server/page/page_routes.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "fmt/format.h"
#include "server/page/page_files.h"

namespace tandem {
namespace {

constexpr std::string_view kIndex = "index.html";
constexpr std::string_view kStatus = "status.html";

// Allows only the page's own files, no inline script or style, and no frame around the page.
// Browsers that support trusted types also refuse to turn text into markup.
constexpr char kContentSecurityPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

const char* ContentType(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  return "image/svg+xml";
}

// Whether the client's If-None-Match contains this tag. Weak tags match, too, because equal bytes
// are also weakly equal.
bool HasAlready(const HttpRequest& request, std::string_view tag) {
  const std::optional<std::string_view> known = request.Header("if-none-match");
  if (!known) return false;
  for (absl::string_view one : absl::StrSplit(View(*known), ',')) {
    one = absl::StripAsciiWhitespace(one);
    absl::ConsumePrefix(&one, "W/");
    if (one == "*" || one == View(tag)) return true;
  }
  return false;
}

// Browsers keep a file, and ask each time whether it is still the same: the page changes with the
// binary.
HttpResponse FileResponse(const PageFile& file, const HttpRequest& request) {
  const std::string tag = fmt::format("\"{}\"", file.sha256.substr(0, 32));
  HttpResponse response{.content_type = ContentType(file.name),
                        .headers = {{"ETag", tag},
                                    {"Cache-Control", "no-cache"},
                                    {"Content-Security-Policy", kContentSecurityPolicy},
                                    {"Cross-Origin-Resource-Policy", "same-origin"},
                                    {"Referrer-Policy", "no-referrer"},
                                    {"X-Content-Type-Options", "nosniff"}}};
  if (file.name == kIndex) response.headers.push_back({"Vary", "Accept"});
  if (HasAlready(request, tag)) {
    response.status = 304;
  } else {
    response.body = std::string(file.bytes);
  }
  return response;
}

// The path at which a file is served. The two documents have paths without their file names.
std::string PathOf(const PageFile& file) {
  if (file.name == kIndex) return "/";
  return file.name == kStatus ? "/status" : fmt::format("/{}", file.name);
}

std::string TextOf(std::string_view model, const std::vector<HttpRoute>& routes) {
  std::string text = fmt::format("Tandem serves {}. A browser shows a page here.\n\n", model);
  for (const HttpRoute& route : routes) {
    const char* const rest = route.match == HttpMatch::kPrefix ? "..." : "";
    text += fmt::format("{:<4} {}{}\n", route.method, route.path, rest);
  }
  return text;
}

bool AcceptsHtml(const HttpRequest& request) {
  const std::optional<std::string_view> accept = request.Header("accept");
  if (!accept) return false;
  for (const absl::string_view one : absl::StrSplit(View(*accept), ',')) {
    if (absl::StartsWithIgnoreCase(absl::StripAsciiWhitespace(one), "text/html")) return true;
  }
  return false;
}

}  // namespace

std::vector<HttpRoute> PageRoutes(std::string_view model, const std::vector<HttpRoute>& others) {
  std::vector<HttpRoute> routes;
  for (const PageFile& file : PageFiles()) {
    HttpHandler serve = [&file](const std::shared_ptr<HttpExchange>& exchange) {
      exchange->Respond(FileResponse(file, exchange->request()));
    };
    if (file.name == kIndex) {
      serve = [page = std::move(serve),
               text = TextOf(model, others)](const std::shared_ptr<HttpExchange>& exchange) {
        if (AcceptsHtml(exchange->request())) return page(exchange);
        exchange->Respond({.body = text,
                           .content_type = "text/plain; charset=utf-8",
                           .headers = {{"Vary", "Accept"}, {"X-Content-Type-Options", "nosniff"}}});
      };
    }
    routes.push_back({.method = "GET", .path = PathOf(file), .handler = std::move(serve)});
  }
  return routes;
}

}  // namespace tandem
