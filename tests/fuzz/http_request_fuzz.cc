// Bytes of any client, as the HTTP server reads them: whole and in pieces they are the same
// request, or are refused, and never take more memory than the limits allow.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/http/request_reader.h"

namespace tandem {
namespace {

constexpr HttpRequestLimits kLimits = {.max_header_bytes = 256, .max_body_bytes = 128};

struct Outcome {
  RequestReader::State state;
  int status = 0;
  HttpRequest request;
};

Outcome ReadInPieces(std::string_view bytes, size_t piece) {
  using State = RequestReader::State;
  RequestReader reader(kLimits);
  std::string received;
  while (!bytes.empty() && reader.state() != State::kDone && reader.state() != State::kRefused) {
    const size_t size = std::min(piece, bytes.size());
    received += bytes.substr(0, size);
    bytes.remove_prefix(size);
    const size_t consumed = reader.Read(received);
    TANDEM_CHECK(consumed <= received.size(), "no more is consumed than came");
    received.erase(0, consumed);
    TANDEM_CHECK(reader.state() == State::kDone || reader.state() == State::kRefused ||
                     received.size() <= kLimits.max_header_bytes,
                 "what waits is bounded");
  }
  Outcome outcome{.state = reader.state()};
  if (outcome.state == State::kRefused) outcome.status = reader.refusal().status;
  if (outcome.state == State::kDone) {
    (void)reader.after();
    outcome.request = reader.TakeRequest();
    TANDEM_CHECK(outcome.request.body.size() <= kLimits.max_body_bytes, "a body has a bound");
    TANDEM_CHECK(!outcome.request.path.empty(), "a request has a path");
  }
  return outcome;
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const tandem::Outcome whole = tandem::ReadInPieces(bytes, std::max<size_t>(size, 1));
  for (const size_t piece : {1, 5}) {
    const tandem::Outcome pieces = tandem::ReadInPieces(bytes, piece);
    TANDEM_CHECK(pieces.state == whole.state, "pieces are read as the whole is");
    TANDEM_CHECK(pieces.request.body == whole.request.body, "pieces have the whole's body");
    TANDEM_CHECK(pieces.request.headers.size() == whole.request.headers.size(),
                 "pieces have the whole's headers");
  }
  return 0;
}
