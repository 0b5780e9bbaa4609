#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "transfer/framed/framed_transport.h"
#include "transfer/media/tcp/tcp_medium.h"

namespace tandem {

// A framed transport over a TCP medium of its own.
absl::StatusOr<std::unique_ptr<Transport>> OpenTcpTransport(const TcpOptions& options,
                                                            FrameReceiver* receiver,
                                                            const FramedOptions& framed = {});

}  // namespace tandem
