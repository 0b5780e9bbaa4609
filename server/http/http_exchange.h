#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "router/request/pace.h"
#include "server/http/http_message.h"

namespace tandem {

// A comment of text/event-stream.
inline constexpr char kKeepAliveComment[] = ": keep-alive\n\n";

// The beginning of an answer that is streamed: status, headers and how it is kept alive.
struct HttpStreamStart {
  int status = 200;
  std::string content_type = "text/event-stream";
  std::vector<HttpHeader> headers;
  // After this time without a part the client gets `keep_alive_part`, which keeps proxies from
  // closing the connection and reveals a client that has gone silently. Zero: never.
  Duration keep_alive = std::chrono::seconds(15);
  std::string keep_alive_part = kKeepAliveComment;
};

// The server's end of a streamed answer. Exactly one call of Close or Abort ends it; dropping the
// last reference without one aborts it. Thread-safe; nothing blocks, and no callback runs within
// these calls.
class HttpStream {
 public:
  virtual ~HttpStream() = default;

  // Sends `part`, which must not be empty, as one chunk. Parts of one stream are sent in the order
  // of the calls. Returns false when the client reads so slowly that the stream's buffer is full
  // or, for kWhole, when too many bytes of all answers together are unread: the stream must then be
  // aborted. Returns true, without an effect, once the client has gone.
  [[nodiscard]] virtual bool Push(std::string part, Pace pace) = 0;
  // Whether a part has not been handed to the system yet.
  virtual bool HasUnwritten() const = 0;
  // Ends the answer once all parts are sent; the client may then use the connection again.
  virtual void Close() = 0;
  // Drops what is queued, sends `last_part` if it is not empty, and closes the connection without
  // the final chunk that marks an answer as complete. A client that reads nothing for
  // HttpServerOptions::slow_reader_grace is disconnected.
  virtual void Abort(std::string last_part = "") = 0;
};

// A request and its answer. The handler makes exactly one call of Respond or StartStream, at any
// time and on any thread; if the last reference is dropped without one, the answer is 500. Handlers
// share the exchange with the work that they start. Thread-safe; nothing blocks.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual const HttpRequest& request() const = 0;
  // Moves the body out of the request, whose body is empty from then on, so that it is not kept
  // until the answer ends. For the handler, before others look at the request.
  virtual std::string TakeBody() = 0;
  // Sends a complete answer. It is replaced by 503 when too many bytes of all answers together are
  // unread.
  virtual void Respond(HttpResponse response) = 0;
  // Begins a streamed answer. Status and headers are sent at once.
  virtual std::shared_ptr<HttpStream> StartStream(HttpStreamStart start) = 0;
  // Sets a callback that is called at most once, when the client has closed the connection or was
  // disconnected before its answer was sent whole. It runs on an I/O thread, which it must not
  // block, or within this call where that has happened before. It is dropped, with all that it
  // holds, when the answer is over. A later callback replaces an earlier one.
  virtual void OnGone(std::function<void()> gone) = 0;
};

// Handles a request. It is called on an I/O thread, which it must not block.
using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

}  // namespace tandem
