#pragma once

#include "tandem/v1/cluster.pb.h"
#include "transfer/fabric.h"

namespace tandem {

// What a worker's report says of its transfers: the ways to its peers, what was refused, the memory
// set aside.
void AddTransfers(const Fabric& fabric, v1::WorkerLoad& load);

v1::LinkStatus ToProto(const PeerLink& link);

}  // namespace tandem
