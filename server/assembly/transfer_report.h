#pragma once

#include <functional>
#include <span>
#include <string>

#include "server/assembly/open_fabric.h"
#include "tandem/v1/cluster.pb.h"
#include "transfer/fabric/fabric.h"

namespace tandem {

// Adds a worker's transfers to its report: the links to its peers, refused frames, and the memory
// of buffers. `kv_ratio_to` is Engine::kv_ratio_to.
void AddTransfers(const Fabric& fabric,
                  const std::function<double(const std::string&)>& kv_ratio_to,
                  v1::WorkerLoad& load);

// Adds each transport that this worker does not have to its report, as a link without a peer whose
// `failure` is the reason.
void AddLeftOut(std::span<const LeftOut> left_out, v1::WorkerLoad& load);

v1::LinkStatus ToProto(const PeerLink& link);
void AddRefused(const RefusedFrames& refused, v1::HandoffUse& handoffs);

}  // namespace tandem
