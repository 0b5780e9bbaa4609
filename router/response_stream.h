#pragma once

#include "absl/status/status.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// Where a request's events go. It must take calls until End, which comes exactly once, last.
// Thread: the router's loop.
class ResponseStream {
 public:
  virtual ~ResponseStream() = default;
  // False when the reader is so slow that the stream's buffer is full: the request must then end.
  [[nodiscard]] virtual bool Send(const v1::GenerateResponse& response) = 0;
  // OK: after all that was sent. An error drops what still waits.
  virtual void End(const absl::Status& status) = 0;
};

}  // namespace tandem
