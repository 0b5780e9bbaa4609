#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// One step that turns tokens into text: it receives strings one by one and emits strings, some of
// them later. Every emitted string consists of whole characters.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  virtual void Push(std::string_view token, std::vector<std::string>& out) = 0;
  virtual void Finish(std::vector<std::string>& out) = 0;
  // A new step with the same configuration and no state.
  virtual std::unique_ptr<DecodeStep> Fresh() const = 0;
};

}  // namespace tandem
