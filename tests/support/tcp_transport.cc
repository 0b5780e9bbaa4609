#include "tests/support/tcp_transport.h"

#include <utility>

#include "base/status.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<Transport>> OpenTcpTransport(const TcpOptions& options,
                                                            FrameReceiver* receiver,
                                                            const FramedOptions& framed) {
  ASSIGN_OR_RETURN(std::unique_ptr<Medium> medium, OpenTcpMedium(options));
  return NewFramedTransport(framed, std::move(medium), receiver);
}

}  // namespace tandem
