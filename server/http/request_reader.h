#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/http_message.h"

namespace tandem {

struct HttpRequestLimits {
  size_t max_header_bytes = 16 << 10;  // of request line and headers
  size_t max_body_bytes = 16 << 20;
};

// Why a request is not served. The connection cannot be used further, because it is not known where
// the next request would begin.
struct HttpRefusal {
  int status = 400;
  std::string message;
};

// Finds one request in the bytes of a connection. It refuses every form of request about whose end
// two parsers may disagree, against request smuggling (docs/http.md), and allocates no memory for
// bytes that a client has only announced. Does no I/O and has no clock.
class RequestReader {
 public:
  enum class State : uint8_t { kEmpty, kHeader, kBody, kDone, kRefused };

  explicit RequestReader(const HttpRequestLimits& limits);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  // `bytes` is all that was received and not consumed before. Returns how many of them are
  // consumed; the rest must be passed again together with later bytes, or belongs to the next
  // request.
  size_t Read(std::string_view bytes);

  State state() const { return state_; }
  const HttpRefusal& refusal() const { return refusal_; }  // valid in the state kRefused
  // Whether the client waits for "100 Continue" before it sends the body. Valid from the state
  // kBody on.
  bool expects_continue() const;
  // How many bytes of the body have come.
  size_t body_bytes() const;
  // Moves the request out. Valid from the state kDone on.
  HttpRequest TakeRequest();
  HttpVersion version() const;
  AfterAnswer after() const;

 private:
  class Parser;

  // The length of the header once it has come whole; 0 before, or if it is refused.
  size_t FindHeaderEnd(std::string_view bytes);
  void ReadHeader(std::string_view header);
  size_t ReadBody(std::string_view bytes);
  void Refuse(int status, std::string message);

  const HttpRequestLimits limits_;
  const std::unique_ptr<Parser> parser_;
  State state_ = State::kEmpty;
  size_t scanned_ = 0;  // the length of the complete lines of the header that were found valid
  bool skipped_empty_line_ = false;
  HttpRefusal refusal_;
};

}  // namespace tandem
