#pragma once

#include <functional>
#include <span>
#include <string>

#include "server/assembly/open_fabric.h"
#include "tandem/v1/cluster.pb.h"
#include "transfer/fabric/fabric.h"

namespace tandem {

// What a worker's report says of its transfers: the ways to its peers, what was refused, the memory
// set aside. `kv_ratio_to` is Engine::kv_ratio_to.
void AddTransfers(const Fabric& fabric,
                  const std::function<double(const std::string&)>& kv_ratio_to,
                  v1::WorkerLoad& load);

// Adds the transports that this worker does not have, each as a link without a peer, with the reason as its
// `failure`.
void AddLeftOut(std::span<const LeftOut> left_out, v1::WorkerLoad& load);

v1::LinkStatus ToProto(const PeerLink& link);
void AddRefused(const RefusedFrames& refused, v1::HandoffUse& handoffs);

}  // namespace tandem
