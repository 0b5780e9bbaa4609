#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/framed/payload_path.h"
#include "transfer/transport.h"

namespace tandem {

// Makes the path on which payloads travel beside the bytes of the connection (SideChannel): frames
// name them instead of carrying them. `device` and `receiver` outlive the path. Errors as
// ExtentStream::Create.
absl::StatusOr<std::unique_ptr<PayloadPath>> NewSideChannelPayloads(Device& device,
                                                                    FrameReceiver& receiver);

// Makes the sending half of such a path alone, which needs nothing of a transport.
std::unique_ptr<OutboundPayloads> NewSideChannelOutbound(ByteChannel& channel);

}  // namespace tandem
