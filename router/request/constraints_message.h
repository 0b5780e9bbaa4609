#pragma once

#include "base/token_constraints.h"
#include "tandem/v1/inference.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// The constraints of a client's request, whose bad words are not tokenized yet. Does not check
// them.
TokenConstraints ToConstraints(const v1::GenerateRequest& request);
// The constraints in a request to a worker. Does not check them.
TokenConstraints ToConstraints(const v1::SequenceRequest& sequence);

}  // namespace tandem
