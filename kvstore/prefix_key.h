#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

// The root of all chained hashes of one salt. `hash` covers the model, the layout and the salt. Two
// salts with equal hashes share nothing, because the salts themselves are compared.
struct PrefixRoot {
  std::string salt;
  uint64_t hash = 0;
};

// The chained hashes of one sequence's full blocks: hash i covers the tokens of blocks [0, i], the
// model, the layout and the salt. The key grows with the sequence, and no token is hashed twice. A
// fork of the sequence uses a copy of the key.
// Thread: engine.
class PrefixKey {
 public:
  // The progress of PrefixCache::Insert with this sequence; maintained by the prefix cache.
  struct Cursor {
    int32_t blocks = 0;  // number of blocks that Insert has handled
    uint64_t node = 0;   // serial of the node of the last handled block; 0: none
  };

  PrefixKey(std::shared_ptr<const PrefixRoot> root, int32_t block_tokens)
      : root_(std::move(root)), block_tokens_(block_tokens) {}

  // Returns the hashes of the full blocks of `tokens`, which must begin with the tokens of all
  // earlier calls.
  std::span<const uint64_t> Extend(std::span<const int32_t> tokens) const;

  const PrefixRoot& root() const { return *root_; }
  std::span<const uint64_t> hashes() const { return hashes_; }
  Cursor& cursor() { return cursor_; }

 private:
  std::shared_ptr<const PrefixRoot> root_;
  int32_t block_tokens_;
  mutable std::vector<uint64_t> hashes_;  // cache of Extend's results
  Cursor cursor_;
};

}  // namespace tandem
