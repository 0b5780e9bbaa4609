#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct HttpHeader {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string method;  // "POST"
  std::string path;    // "/v1/models/x", as it was sent: not percent-decoded
  std::string query;   // what followed the "?", without it
  std::vector<HttpHeader> headers;
  std::string body;    // whole, without any transfer encoding
  std::string remote;  // the client's address and port, as "127.0.0.1:51234"
  std::string tenant;  // the tenant it counts for (HttpServerOptions::authorize); empty: unknown

  // The value of the first header of that name, in whatever case; nothing where there is none.
  std::optional<std::string_view> Header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  // Headers besides Content-Type. The server itself sets Content-Length, Transfer-Encoding,
  // Connection and Date.
  std::vector<HttpHeader> headers;
};

// The answer of every error, in the form that clients of OpenAI's API read:
// {"error":{"message":...,"type":...,"param":null,"code":...}}. The type is OpenAI's for the
// status.
HttpResponse HttpError(int status, std::string_view message, std::string_view code = "");
// "text/%C3%A9" as "text/é"; nothing where a percent sign is not followed by two digits.
std::optional<std::string> DecodePercent(std::string_view text);
// An event of text/event-stream with this data, which must have no line feed. The second form also
// gives the event a name.
std::string SseEvent(std::string_view data);
std::string SseEvent(std::string_view name, std::string_view data);

// Parts of RenderHead, which writes the status line and headers of an answer, up to and including
// the empty line. `content_length`: nothing where the length of the body is not known. Characters
// that would end a header early are replaced.
enum class HttpVersion : uint8_t { k10, k11 };
enum class AfterAnswer : uint8_t { kKeepAlive, kClose };
struct HttpHead {
  int status = 200;
  std::string content_type;  // empty: no body
  std::vector<HttpHeader> headers;
  std::optional<size_t> content_length;
  HttpVersion version = HttpVersion::k11;
  AfterAnswer after = AfterAnswer::kKeepAlive;
};
std::string RenderHead(const HttpHead& head);
// Whether answers of this status never have a body.
bool HasNoBody(int status);

}  // namespace tandem
