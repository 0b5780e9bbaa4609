#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "bench/serving/http_streams.h"
#include "security/tls_files.h"
#include "server/terminal/wakeup.h"

namespace tandem::terminal {

struct ServedModel {
  std::string name;
  int32_t max_context_tokens = 0;  // 0 where the server does not say
};

// The connection of a terminal to a server with OpenAI's API. All errors carry the server's
// message; UNAVAILABLE where no server answers, which may change by the next call. Not thread-safe.
class ChatConnection {
 public:
  // `url`: such as "http://127.0.0.1:8000". `tls`: the files for HTTPS, as in HttpRequest. `wakeup`
  // outlives this.
  ChatConnection(std::string url, Wakeup& wakeup, TlsFiles tls = {});

  const std::string& url() const { return url_; }
  // The model of that name, or the first one where the name is empty.
  absl::StatusOr<ServedModel> FindModel(const std::string& name) const;
  // How many tokens the prompt of `body` has. `body` is what Ask takes.
  absl::StatusOr<int64_t> CountTokens(const std::string& body) const;
  // The router's explanation of where it sent the request, as text of that width.
  absl::StatusOr<std::string> Explain(const std::string& request_id, int columns) const;

  // Sends a chat with a streamed answer. Until the answer has ended, it calls `on_event` in this
  // thread with the data of each event. `must_stop` is called each time that `wakeup` wakes this
  // thread; if it returns true, the request is cancelled and the result is CANCELLED.
  absl::Status Ask(const std::string& body, const std::string& request_id,
                   const std::function<void(std::string_view)>& on_event,
                   const std::function<bool()>& must_stop);

 private:
  loadgen::HttpRequest Request(const std::string& path) const;

  const std::string url_;
  const TlsFiles tls_;
  Wakeup& wakeup_;
  loadgen::HttpStreams streams_;
};

}  // namespace tandem::terminal
