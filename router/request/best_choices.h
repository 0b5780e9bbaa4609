#pragma once

#include <cstdint>
#include <vector>

#include "tandem/v1/inference.pb.h"

namespace tandem {

// A choice that its client has not been sent yet.
struct KeptChoice {
  std::vector<v1::Chunk> chunks;
  v1::ChoiceFinish finish;
};

// The n choices of the highest total log-probability, best first, numbered anew from 0. Among
// equals the one that had the lower number comes first.
std::vector<KeptChoice> BestChoices(std::vector<KeptChoice> choices, int32_t n);

}  // namespace tandem
