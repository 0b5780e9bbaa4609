#pragma once

#include "absl/status/status.h"
#include "router/request/pace.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// The client's end of a request. It takes calls until End, which comes exactly once, last.
// Thread: the router's loop.
class ResponseStream {
 public:
  virtual ~ResponseStream() = default;
  // Sends a response. False when the reader is so slow that the stream's buffer is full or, for
  // kWhole, when too much of all answers is unread: the request must then end.
  [[nodiscard]] virtual bool Send(const v1::GenerateResponse& response, Pace pace) = 0;
  // Ends the stream: with OK after everything that was sent; an error drops what is still queued.
  virtual void End(const absl::Status& status) = 0;
};

}  // namespace tandem
