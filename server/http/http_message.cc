#include "server/http/http_message.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <utility>

#include "absl/strings/match.h"
#include "base/json.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

constexpr std::pair<int, std::string_view> kReasons[] = {
    {100, "Continue"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

std::string_view Reason(int status) {
  for (const auto& [known, reason] : kReasons) {
    if (known == status) return reason;
  }
  return "Unknown";
}

std::string_view ErrorType(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

// A line end within a header would let its value add headers of its own.
void AppendHeader(std::string_view name, std::string_view value, std::string& out) {
  const auto append = [&out](std::string_view text) {
    for (const char c : text) out += c == '\r' || c == '\n' || c == '\0' ? ' ' : c;
  };
  append(name);
  out += ": ";
  append(value);
  out += "\r\n";
}

std::string Date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[40];
  return {text, std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

}  // namespace

std::optional<std::string_view> HttpRequest::Header(std::string_view name) const {
  for (const HttpHeader& header : headers) {
    if (absl::EqualsIgnoreCase(absl::string_view(header.name.data(), header.name.size()),
                               absl::string_view(name.data(), name.size()))) {
      return header.value;
    }
  }
  return std::nullopt;
}

HttpResponse HttpError(int status, std::string_view message, std::string_view code) {
  nlohmann::json error = {{"message", message}, {"type", ErrorType(status)}, {"param", nullptr}};
  error["code"] = code.empty() ? nlohmann::json() : nlohmann::json(code);
  using Json = nlohmann::json;
  // The message may quote bytes of the client that are not UTF-8.
  return {.status = status, .body = JsonText(Json{{"error", error}}) + "\n"};
}

std::optional<std::string> DecodePercent(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const char* const digits = text.data() + i + 1;
    unsigned byte = 0;
    if (std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2) return std::nullopt;
    decoded += static_cast<char>(byte);
    i += 2;
  }
  return decoded;
}

std::string SseEvent(std::string_view data) { return fmt::format("data: {}\n\n", data); }

std::string SseEvent(std::string_view name, std::string_view data) {
  return fmt::format("event: {}\ndata: {}\n\n", name, data);
}

bool HasNoBody(int status) { return status < 200 || status == 204 || status == 304; }

std::string RenderHead(const HttpHead& head) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", head.status, Reason(head.status));
  AppendHeader("Date", Date(), text);
  if (!head.content_type.empty()) AppendHeader("Content-Type", head.content_type, text);
  if (head.content_length) {
    AppendHeader("Content-Length", fmt::to_string(*head.content_length), text);
  } else if (!HasNoBody(head.status) && head.version == HttpVersion::k11) {
    AppendHeader("Transfer-Encoding", "chunked", text);
  }
  for (const HttpHeader& header : head.headers) AppendHeader(header.name, header.value, text);
  if (head.after == AfterAnswer::kClose) {
    AppendHeader("Connection", "close", text);
  } else if (head.version == HttpVersion::k10) {
    AppendHeader("Connection", "keep-alive", text);
  }
  text += "\r\n";
  return text;
}

}  // namespace tandem
