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

// Finds one request in the bytes of a connection. It refuses each form of a request of which two
// readers may disagree where it ends (docs/http.md), and takes no memory for what a client only
// announces. No I/O and no clock.
class RequestReader {
 public:
  enum class State : uint8_t { kEmpty, kHeader, kBody, kDone, kRefused };

  explicit RequestReader(const HttpRequestLimits& limits);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  // `bytes` is all that came and was not consumed before. Returns how much of it is consumed; the rest
  // is to be given again, with what came in the meantime, or belongs to the next request.
  size_t Read(std::string_view bytes);

  State state() const { return state_; }
  const HttpRefusal& refusal() const { return refusal_; }  // of kRefused
  // From kBody on. The client sends no body before it has seen "100 Continue".
  bool expects_continue() const;
  // What has come of the body.
  size_t body_bytes() const;
  // From kDone on.
  HttpRequest TakeRequest();
  HttpVersion version() const;
  AfterAnswer after() const;

 private:
  class Parser;

  // Returns the length of the header once it is whole, 0 before. May refuse it.
  size_t FindHeaderEnd(std::string_view bytes);
  void ReadHeader(std::string_view header);
  size_t ReadBody(std::string_view bytes);
  void Refuse(int status, std::string message);

  const HttpRequestLimits limits_;
  const std::unique_ptr<Parser> parser_;
  State state_ = State::kEmpty;
  size_t scanned_ = 0;  // bytes of the header in which no line was found that may not be there
  bool skipped_empty_line_ = false;
  HttpRefusal refusal_;
};

}  // namespace tandem
