#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "security/tls_files.h"

namespace tandem::loadgen {

// An HTTP/1.1 request. Headers are whole lines, "Name: value".
struct HttpRequest {
  std::string url;
  std::vector<std::string> headers;
  std::string body;                            // empty: GET, else POST
  Duration timeout = std::chrono::seconds(5);  // 0: none
  // The files for HTTPS. Without authorities those that the system knows are trusted; the
  // certificate is shown to servers that ask for one.
  TlsFiles tls;
  size_t max_answer_bytes = size_t{64} << 20;  // Fetch: a longer body is an error
  // Fetch: asked about once a second, and more often while bytes move, whether the answer is not
  // wanted any more. Empty: it is.
  std::function<bool()> unwanted = nullptr;
};

struct HttpAnswer {
  long code = 0;
  std::string body;
  std::optional<Duration> retry_after;  // where the answer has the header
};

// Sends the request and waits for the answer. UNAVAILABLE when there is none, FAILED_PRECONDITION
// when the certificate of an HTTPS server is refused. Uses no proxy.
absl::StatusOr<HttpAnswer> Fetch(const HttpRequest& request);

// Receives what comes of one streamed exchange, on the thread of HttpStreams.
class HttpSink {
 public:
  virtual ~HttpSink() = default;
  // Bytes of the body; `code` is the status of the answer, which came before.
  virtual void OnBody(long code, std::string_view bytes) = 0;
  // Called exactly once, after all other events. `status` is OK when an answer came and ended as
  // HTTP says, whatever its code.
  virtual void OnEnd(long code, absl::Status status) = 0;
};

// A request that is ready to be sent.
class HttpExchange;

// Runs any number of exchanges from one thread, each on a connection of its own; connections are
// used again. Thread-safe.
class HttpStreams {
 public:
  HttpStreams();
  // All exchanges must have ended.
  ~HttpStreams();
  HttpStreams(const HttpStreams&) = delete;
  HttpStreams& operator=(const HttpStreams&) = delete;

  // Makes an exchange that only has to be started.
  std::shared_ptr<HttpExchange> Prepare(const HttpRequest& request, std::unique_ptr<HttpSink> sink);
  // Sends the request and returns at once. To be called once per exchange.
  void Start(std::shared_ptr<HttpExchange> exchange);
  // Ends it with CANCELLED, unless it has ended before.
  void Cancel(std::shared_ptr<HttpExchange> exchange);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace tandem::loadgen
