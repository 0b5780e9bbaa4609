#pragma once

#include "bench/serving/backend.h"
#include "tandem/v1/inference.pb.h"

namespace tandem::loadgen {

// What a Tandem router says at the end of an answer, as a backend reports it.
void TakeFinish(const v1::ChoiceFinish& finish, CallEnd& end);
void TakeSummary(const v1::Summary& summary, CallEnd& end);

}  // namespace tandem::loadgen
