#pragma once

#include <memory>

#include "tests/support/frame_faults.h"
#include "transfer/media/medium.h"

namespace tandem {

// A medium whose connections do to the frames that come in what a hook says, below the transport:
// as a network, or a peer, that is broken. To who accepts come frames of direction kToReceiver, to
// who connects those of kToSender. A held frame stays held.
// `hook` is called on the transport's thread; connections are counted in the order of their making.
std::unique_ptr<Medium> NewFaultyMedium(std::unique_ptr<Medium> medium, FrameHook hook);

}  // namespace tandem
