#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

// Where the chains of one salt begin. `hash` covers the model, the layout and the salt; equal
// hashes of two salts share nothing, since the salts themselves are compared.
struct PrefixRoot {
  std::string salt;
  uint64_t hash = 0;
};

// The chained hashes of one sequence's full blocks: hash i covers the tokens of blocks [0, i], the
// model, the layout and the salt. It grows as the sequence does; what is hashed once is not again.
// A copy serves a fork of the sequence.
// Thread: engine.
class PrefixKey {
 public:
  // How far Insert has come with this sequence; kept by the prefix cache.
  struct Cursor {
    int32_t blocks = 0;  // tried
    uint64_t node = 0;   // of the last of them; 0: none
  };

  PrefixKey(std::shared_ptr<const PrefixRoot> root, int32_t block_tokens)
      : root_(std::move(root)), block_tokens_(block_tokens) {}

  // The hashes of the full blocks of `tokens`, which begin with those of the calls before.
  std::span<const uint64_t> Extend(std::span<const int32_t> tokens) const;

  const PrefixRoot& root() const { return *root_; }
  std::span<const uint64_t> hashes() const { return hashes_; }
  Cursor& cursor() { return cursor_; }

 private:
  std::shared_ptr<const PrefixRoot> root_;
  int32_t block_tokens_;
  mutable std::vector<uint64_t>
      hashes_;  // a memory of what Extend computes, which depends on nothing
  Cursor cursor_;
};

}  // namespace tandem
