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

// What a stream of parts begins with.
struct HttpStreamStart {
  int status = 200;
  std::string content_type = "text/event-stream";
  std::vector<HttpHeader> headers;
  // After so long without a part the client gets `keep_alive_part`, which keeps proxies from closing
  // the connection and shows a client that went without a word. Zero: never.
  Duration keep_alive = std::chrono::seconds(15);
  std::string keep_alive_part = kKeepAliveComment;
};

// The server's end of an answer that is sent in parts. Ends with exactly one call of Close or Abort;
// dropping the last reference without one is an Abort. Thread-safe; nothing blocks, and nothing is
// called back from within these calls.
class HttpStream {
 public:
  virtual ~HttpStream() = default;

  // Sends `part`, which is not empty, as one chunk. Parts of one stream are sent in the order of the
  // calls. False when the reader is so slow that the stream's buffer is full or, for kWhole, when too
  // much of all answers is unread: the stream must then be aborted. True, and no effect, once the
  // client has gone.
  [[nodiscard]] virtual bool Push(std::string part, Pace pace) = 0;
  // Whether a part has not been handed to the system yet.
  virtual bool HasUnwritten() const = 0;
  // Ends the answer once all parts are sent; the client may then use the connection again.
  virtual void Close() = 0;
  // Drops what is queued, sends `last_part` if there is one, and closes the connection without the
  // mark that the answer is whole. A client that takes nothing for
  // HttpServerOptions::slow_reader_grace is disconnected.
  virtual void Abort(std::string last_part = "") = 0;
};

// A request and its answer: exactly one call of Respond or StartStream, at any time and on any thread.
// Dropping the last reference without one answers 500. Handlers share it with whatever they start.
// Thread-safe; nothing blocks.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual const HttpRequest& request() const = 0;
  // Moves the body out of the request, whose body is empty from then on, so that it is not kept until
  // the answer ends. For the handler, before others look at the request.
  virtual std::string TakeBody() = 0;
  // 503 takes the answer's place when too much of all answers is unread.
  virtual void Respond(HttpResponse response) = 0;
  // The status and headers are sent at once.
  virtual std::shared_ptr<HttpStream> StartStream(HttpStreamStart start) = 0;
  // `gone` is called at most once, when the client has closed the connection, or was disconnected,
  // before its answer was sent whole: on an I/O thread, which it must not block, or from within this
  // call where that has happened before. It is dropped, with all that it holds, when the answer is over.
  // A later callback takes the place of an earlier one.
  virtual void OnGone(std::function<void()> gone) = 0;
};

// Called on an I/O thread, which it must not block.
using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

}  // namespace tandem
