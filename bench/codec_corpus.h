#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/codec/extent_shape.h"

namespace tandem {

// The KV of one text: its extents one after another.
struct Prompt {
  std::string name;
  int32_t num_blocks = 0;
  std::vector<std::byte> bytes;  // [layer][block]
};

// The KV of several texts as one model computes it.
struct Corpus {
  ExtentShape shape;
  int32_t num_layers = 0;
  std::vector<Prompt> prompts;

  std::span<const std::byte> Extent(const Prompt& prompt, int32_t layer, int32_t block) const {
    const auto index = static_cast<size_t>(layer) * static_cast<size_t>(prompt.num_blocks) +
                       static_cast<size_t>(block);
    return std::span(prompt.bytes).subspan(index * shape.Bytes(), shape.Bytes());
  }
  // Calls `function(layer, extent)` for each extent of the text.
  template <typename Function>
  void ForEach(const Prompt& prompt, Function function) const {
    for (int32_t layer = 0; layer < num_layers; ++layer) {
      for (int32_t block = 0; block < prompt.num_blocks; ++block) {
        function(layer, Extent(prompt, layer, block));
      }
    }
  }
};

// Cuts each text to at most `most_tokens` tokens and prefills it on a CPU. Errors: a model that cannot be
// loaded, a text too short for a block, fewer than two texts.
absl::StatusOr<Corpus> PrefillTexts(const std::string& model, const std::vector<std::string>& paths,
                                    int32_t most_tokens);

}  // namespace tandem
