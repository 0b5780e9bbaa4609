#include "server/http/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "fmt/format.h"

namespace tandem {
namespace {

namespace beast = boost::beast;
using beast::error_code;

std::string_view View(beast::string_view text) { return {text.data(), text.size()}; }

bool EqualsIgnoreCase(std::string_view a, std::string_view b) {
  return absl::EqualsIgnoreCase(absl::string_view(a.data(), a.size()),
                                absl::string_view(b.data(), b.size()));
}

int StatusOf(const error_code& code) {
  using beast::http::error;
  if (code == error::body_limit) return 413;
  if (code == error::header_limit) return 431;
  return code == error::bad_version ? 505 : 400;
}

// Path and query of a request target, which proxies may send with scheme and host before it. False
// where it has no path.
bool SplitTarget(std::string_view target, HttpRequest& request) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!EqualsIgnoreCase(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
    if (target.empty() || target[0] == '?') request.path = "/";
  }
  const size_t mark = std::min(target.find('?'), target.size());
  request.path += target.substr(0, mark);
  request.query = target.substr(std::min(mark + 1, target.size()));
  return request.path.starts_with('/') || (request.path == "*" && request.method == "OPTIONS");
}

}  // namespace

// Beast's parser, which fills in a request from what it finds.
class RequestReader::Parser final : public beast::http::basic_parser<true> {
 public:
  HttpRequest request;
  std::string target;
  bool is_header_over = false;
  // Values of headers that say where the body ends.
  std::vector<std::string> lengths;
  std::vector<std::string> encodings;
  std::vector<std::string> expectations;
  int hosts = 0;

  HttpVersion version() const { return version_ == 11 ? HttpVersion::k11 : HttpVersion::k10; }

 private:
  void on_request_impl(beast::http::verb, beast::string_view method, beast::string_view path,
                       int version, error_code&) override {
    request.method = View(method);
    target = View(path);
    version_ = version;
  }
  void on_response_impl(int, beast::string_view, int, error_code&) override {}
  void on_field_impl(beast::http::field field, beast::string_view name, beast::string_view value,
                     error_code&) override {
    if (is_header_over) return;  // trailers after a chunked body are ignored
    request.headers.push_back({std::string(View(name)), std::string(View(value))});
    if (field == beast::http::field::content_length) lengths.emplace_back(View(value));
    if (field == beast::http::field::transfer_encoding) encodings.emplace_back(View(value));
    if (field == beast::http::field::expect) expectations.emplace_back(View(value));
    if (field == beast::http::field::host) ++hosts;
  }
  void on_header_impl(error_code&) override { is_header_over = true; }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(beast::string_view body, error_code&) override {
    request.body += View(body);
    return body.size();
  }
  void on_chunk_header_impl(std::uint64_t, beast::string_view, error_code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view body, error_code&) override {
    request.body += View(body);
    return body.size();
  }
  void on_finish_impl(error_code&) override {}

  int version_ = 11;
};

RequestReader::RequestReader(const HttpRequestLimits& limits)
    : limits_(limits), parser_(std::make_unique<Parser>()) {
  parser_->eager(true);
  parser_->body_limit(limits.max_body_bytes);
  parser_->header_limit(static_cast<std::uint32_t>(limits.max_header_bytes));
}

RequestReader::~RequestReader() = default;

size_t RequestReader::Read(std::string_view bytes) {
  size_t consumed = 0;
  if (state_ == State::kEmpty || state_ == State::kHeader) {
    // Skips one empty line: some clients send one after a body and do not count it in the length.
    if (!skipped_empty_line_ && bytes.starts_with("\r\n")) {
      skipped_empty_line_ = true;
      consumed = 2;
    }
    const std::string_view rest = bytes.substr(consumed);
    if (rest.empty() || rest == "\r") return consumed;
    state_ = State::kHeader;
    skipped_empty_line_ = true;
    const size_t header = FindHeaderEnd(rest);
    if (header == 0) return consumed;
    ReadHeader(rest.substr(0, header));
    consumed += header;
  }
  if (state_ == State::kBody) consumed += ReadBody(bytes.substr(consumed));
  return consumed;
}

size_t RequestReader::FindHeaderEnd(std::string_view bytes) {
  const size_t most = std::min(bytes.size(), limits_.max_header_bytes);
  // Each pass checks one line, also the last one, whose end may not have come yet.
  while (true) {
    const size_t line_end = bytes.substr(0, most).find('\n', scanned_);
    const size_t looked_at = line_end == std::string_view::npos ? most : line_end;
    const std::string_view line = bytes.substr(scanned_, looked_at - scanned_);
    const bool ends = line_end != std::string_view::npos;
    const std::string_view text = line.substr(0, line.empty() ? 0 : line.size() - 1);
    const bool has_stray =
        text.find_first_of(std::string_view("\r\0", 2)) != std::string_view::npos;
    if (has_stray || (ends && !line.ends_with('\r'))) {
      Refuse(400, "a line of the header does not end with CR LF, or has a NUL");
      return 0;
    }
    if (scanned_ > 0 && (line.starts_with(' ') || line.starts_with('\t'))) {
      Refuse(400, "a header is folded over several lines: send it on one");
      return 0;
    }
    if (!ends) break;
    scanned_ = line_end + 1;
    if (line == "\r") return scanned_;
  }
  if (bytes.size() >= limits_.max_header_bytes) {
    Refuse(431, fmt::format("request line and headers have more than {} bytes",
                            limits_.max_header_bytes));
  }
  return 0;
}

void RequestReader::ReadHeader(std::string_view header) {
  error_code error;
  const size_t read = parser_->put(boost::asio::buffer(header.data(), header.size()), error);
  if (error == beast::http::error::body_limit) {
    return Refuse(413, fmt::format("the body has more than {} bytes", limits_.max_body_bytes));
  }
  if (error && error != beast::http::error::need_more) {
    return Refuse(StatusOf(error), "the header is malformed: " + error.message());
  }
  if (read != header.size() || !parser_->is_header_done()) {
    return Refuse(400, "the header is malformed");
  }
  if (parser_->lengths.size() + parser_->encodings.size() > 1) {
    return Refuse(400, "more than one header says where the body ends");
  }
  if (!parser_->encodings.empty() && parser_->version() == HttpVersion::k10) {
    return Refuse(400, "Transfer-Encoding is not part of HTTP/1.0");
  }
  if (!parser_->encodings.empty() && !EqualsIgnoreCase(parser_->encodings[0], "chunked")) {
    return Refuse(501, "of the transfer encodings, only chunked is understood");
  }
  if (!parser_->lengths.empty() &&
      parser_->lengths[0].find_first_not_of("0123456789") != std::string::npos) {
    return Refuse(400, "Content-Length is no number");
  }
  if (parser_->hosts > 1 || (parser_->hosts == 0 && parser_->version() == HttpVersion::k11)) {
    return Refuse(400, "the request needs exactly one Host header");
  }
  for (const std::string& expectation : parser_->expectations) {
    if (!EqualsIgnoreCase(expectation, "100-continue")) {
      return Refuse(417, "of the expectations, only 100-continue is understood");
    }
  }
  if (!SplitTarget(parser_->target, parser_->request)) {
    return Refuse(400, "the request's target is no path");
  }
  state_ = parser_->is_done() ? State::kDone : State::kBody;
}

size_t RequestReader::ReadBody(std::string_view bytes) {
  size_t consumed = 0;
  while (state_ == State::kBody && consumed < bytes.size()) {
    // Beast gets at most max_header_bytes at a time, so that the header of a chunk and the trailers
    // are held to that limit however the bytes were split on arrival.
    const std::string_view part = bytes.substr(consumed, limits_.max_header_bytes);
    error_code error;
    const size_t read = parser_->put(boost::asio::buffer(part.data(), part.size()), error);
    consumed += read;
    if (error == beast::http::error::body_limit) {
      Refuse(413, fmt::format("the body has more than {} bytes", limits_.max_body_bytes));
    } else if (error && error != beast::http::error::need_more) {
      Refuse(400, "the body's chunks are malformed: " + error.message());
    } else if (parser_->is_done()) {
      state_ = State::kDone;
    } else if (read == 0 && part.size() == limits_.max_header_bytes) {
      Refuse(400, "a chunk's header or the trailer is too long");
    } else if (read == 0) {
      break;
    }
  }
  return consumed;
}

void RequestReader::Refuse(int status, std::string message) {
  state_ = State::kRefused;
  refusal_ = {.status = status, .message = std::move(message)};
}

bool RequestReader::expects_continue() const {
  return !parser_->expectations.empty() && parser_->version() == HttpVersion::k11;
}

size_t RequestReader::body_bytes() const { return parser_->request.body.size(); }

HttpRequest RequestReader::TakeRequest() { return std::move(parser_->request); }

HttpVersion RequestReader::version() const { return parser_->version(); }

AfterAnswer RequestReader::after() const {
  return parser_->keep_alive() ? AfterAnswer::kKeepAlive : AfterAnswer::kClose;
}

}  // namespace tandem
