#include "model/tokenizer/bpe.h"

#include <algorithm>

#include "base/status.h"
#include "model/tokenizer/unicode.h"

namespace tandem {
namespace {

constexpr int32_t kNone = -1;
constexpr std::string_view kSpaceMark = "\u2581";

// Whether `token` has the space mark ▁ after another character.
bool HasInnerSpaceMark(std::string_view token) {
  while (token.substr(0, kSpaceMark.size()) == kSpaceMark) token.remove_prefix(kSpaceMark.size());
  return token.find(kSpaceMark) != std::string_view::npos;
}

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

std::string EncodeTwoBytes(int32_t c) {
  return {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
}

std::array<std::string, 256> MakeByteLevelCharacters() {
  std::array<std::string, 256> characters;
  int32_t next_substitute = 0x100;
  for (int32_t byte = 0; byte < 256; ++byte) {
    const bool ascii = byte >= '!' && byte <= '~';
    const bool latin = byte >= 0xA1 && byte != 0xAD;
    if (ascii) {
      characters[byte] = std::string(1, static_cast<char>(byte));
    } else {
      characters[byte] = EncodeTwoBytes(latin ? byte : next_substitute++);
    }
  }
  return characters;
}

// Heap order: the lowest rank first, then the leftmost position.
bool ComesLater(const Bpe::Scratch::Candidate& a, const Bpe::Scratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

const std::array<std::string, 256>& ByteLevelCharacters() {
  static const std::array<std::string, 256> characters = MakeByteLevelCharacters();
  return characters;
}

std::optional<std::string> ByteLevelBytes(std::string_view token) {
  static const auto* const bytes = [] {
    auto* map = new absl::flat_hash_map<int32_t, char>;
    for (int byte = 0; byte < 256; ++byte) {
      (*map)[FirstCharacter(ByteLevelCharacters()[byte]).code_point] = static_cast<char>(byte);
    }
    return map;
  }();
  std::string out;
  while (!token.empty()) {
    const Character first = FirstCharacter(token);
    const auto found = bytes->find(first.code_point);
    if (found == bytes->end()) return std::nullopt;
    out.push_back(found->second);
    token.remove_prefix(first.length);
  }
  return out;
}

Bpe::Bpe(Vocabulary vocabulary, Options options)
    : options_(std::move(options)), tokens_(std::move(vocabulary.tokens)) {
  index_.reserve(tokens_.size());
  for (const auto& [token, id] : tokens_) {
    index_.emplace(token, id);
    if (!token.empty() && FirstCharacter(token).length == token.size()) {
      character_ids_.emplace(FirstCharacter(token).code_point, id);
    }
    if (!options_.byte_level) continue;
    if (std::optional<std::string> bytes = ByteLevelBytes(token)) {
      byte_index_.emplace(*std::move(bytes), id);
    }
  }
}

absl::StatusOr<std::unique_ptr<const Bpe>> Bpe::Create(Vocabulary vocabulary, Options options) {
  const std::vector<std::pair<std::string, std::string>> merges = std::move(vocabulary.merges);
  std::unique_ptr<Bpe> bpe(new Bpe(std::move(vocabulary), std::move(options)));
  RETURN_IF_ERROR(bpe->AddMerges(merges));
  bpe->AddBytes();
  if (bpe->options_.unk_token.has_value()) {
    bpe->unk_id_ = bpe->Find(*bpe->options_.unk_token);
    if (!bpe->unk_id_.has_value()) {
      return InvalidArgument("model.unk_token: {} is not in the vocabulary",
                             *bpe->options_.unk_token);
    }
  }
  return std::unique_ptr<const Bpe>(std::move(bpe));
}

absl::Status Bpe::AddMerges(const std::vector<std::pair<std::string, std::string>>& merges) {
  merges_.reserve(merges.size());
  if (!options_.byte_level) word_start_id_ = Find(kSpaceMark);
  uint32_t rank = 0;
  for (const auto& [left, right] : merges) {
    const std::optional<int32_t> left_id = Find(left);
    const std::optional<int32_t> right_id = Find(right);
    const std::optional<int32_t> merged_id = Find(left + right);
    if (!left_id.has_value() || !right_id.has_value() || !merged_id.has_value()) {
      return InvalidArgument(
          "model.merges[{}]: {}, {} or the two together is not in the vocabulary", rank, left,
          right);
    }
    merges_[PairKey(*left_id, *right_id)] = {rank, *merged_id};
    if (HasInnerSpaceMark(left + right)) word_start_id_.reset();
    ++rank;
  }
  return absl::OkStatus();
}

void Bpe::AddBytes() {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string token =
        options_.byte_level ? ByteLevelCharacters()[byte] : fmt::format("<0x{:02X}>", byte);
    byte_ids_[byte] = Find(token).value_or(kNone);
  }
}

std::optional<int32_t> Bpe::Find(std::string_view token) const {
  const auto found = index_.find(absl::string_view(token.data(), token.size()));
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

std::optional<int32_t> Bpe::FindWord(std::string_view word) const {
  if (!options_.byte_level) return Find(word);
  const auto found = byte_index_.find(absl::string_view(word.data(), word.size()));
  if (found == byte_index_.end()) return std::nullopt;
  return found->second;
}

void Bpe::BytesToSymbols(std::string_view word, Scratch& scratch) const {
  bool unknown_before = false;
  for (const char byte : word) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(byte)];
    const bool unknown = id == kNone;
    const bool fused = unknown && unknown_before && options_.fuse_unk;
    unknown_before = unknown;
    if (unknown && (fused || !unk_id_.has_value())) continue;
    scratch.symbols.push_back({unknown ? *unk_id_ : id, 0, 0, true});
  }
}

bool Bpe::FallBackToBytes(std::string_view character, Scratch& scratch) const {
  const bool all = std::all_of(character.begin(), character.end(), [this](char byte) {
    return byte_ids_[static_cast<uint8_t>(byte)] != kNone;
  });
  if (!all) return false;
  for (const char byte : character) {
    scratch.symbols.push_back({byte_ids_[static_cast<uint8_t>(byte)], 0, 0, true});
  }
  return true;
}

void Bpe::CharactersToSymbols(std::string_view word, Scratch& scratch) const {
  // An unknown token is appended only when the next known or second unknown character is reached,
  // so that fallback bytes in between precede it, as in the reference library.
  bool unknown_pending = false;
  const auto write_pending = [&] {
    if (unknown_pending) scratch.symbols.push_back({*unk_id_, 0, 0, true});
    unknown_pending = false;
  };
  while (!word.empty()) {
    const Character first = FirstCharacter(word);
    const std::string_view character = word.substr(0, first.length);
    word.remove_prefix(first.length);
    const auto known = character_ids_.find(first.code_point);
    if (known != character_ids_.end()) {
      write_pending();
      scratch.symbols.push_back({known->second, 0, 0, true});
      continue;
    }
    if (options_.byte_fallback && FallBackToBytes(character, scratch)) continue;
    if (!unk_id_.has_value()) continue;
    if (!options_.fuse_unk) write_pending();
    unknown_pending = true;
  }
  write_pending();
}

void Bpe::PushPair(int32_t left, Scratch& scratch) const {
  const int32_t right = scratch.symbols[left].next;
  if (right == kNone) return;
  const int32_t left_id = scratch.symbols[left].id;
  const int32_t right_id = scratch.symbols[right].id;
  const auto merge = merges_.find(PairKey(left_id, right_id));
  if (merge == merges_.end()) return;
  scratch.heap.push_back({merge->second.rank, left, left_id, right_id, merge->second.id});
}

// One past the last symbol that merges could join with the symbol at `begin`.
int32_t Bpe::EndOfMergeableRun(int32_t begin, const Scratch& scratch) const {
  const auto& symbols = scratch.symbols;
  const auto count = static_cast<int32_t>(symbols.size());
  if (!word_start_id_.has_value()) return count;
  int32_t end = begin + 1;
  while (end < count &&
         (symbols[end].id != *word_start_id_ || symbols[end - 1].id == *word_start_id_)) {
    ++end;
  }
  return end;
}

void Bpe::MergeSymbols(int32_t begin, int32_t end, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  for (int32_t i = begin; i < end; ++i) {
    symbols[i].previous = i > begin ? i - 1 : kNone;
    symbols[i].next = i + 1 < end ? i + 1 : kNone;
  }
  heap.clear();
  for (int32_t i = begin; i < end; ++i) PushPair(i, scratch);
  std::make_heap(heap.begin(), heap.end(), ComesLater);
  const auto push = [&](int32_t left) {
    const size_t before = heap.size();
    PushPair(left, scratch);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), ComesLater);
  };
  while (!heap.empty()) {
    const Scratch::Candidate best = heap.front();
    std::pop_heap(heap.begin(), heap.end(), ComesLater);
    heap.pop_back();
    Scratch::Symbol& left = symbols[best.position];
    // The candidate is stale if one of its symbols has been merged since it was pushed.
    if (!left.alive || left.next == kNone || left.id != best.left_id) continue;
    Scratch::Symbol& right = symbols[left.next];
    if (right.id != best.right_id) continue;
    left.id = best.id;
    right.alive = false;
    left.next = right.next;
    if (left.next != kNone) symbols[left.next].previous = best.position;
    if (left.previous != kNone) push(left.previous);
    push(best.position);
  }
}

bool Bpe::CoversAllText() const {
  return (options_.byte_level || options_.byte_fallback) &&
         std::none_of(byte_ids_.begin(), byte_ids_.end(), [](int32_t id) { return id == kNone; });
}

void Bpe::Encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (options_.ignore_merges) {
    if (const std::optional<int32_t> id = FindWord(word)) {
      ids.push_back(*id);
      return;
    }
  }
  scratch.symbols.clear();
  if (options_.byte_level) {
    BytesToSymbols(word, scratch);
  } else {
    CharactersToSymbols(word, scratch);
  }
  const auto count = static_cast<int32_t>(scratch.symbols.size());
  for (int32_t begin = 0; begin < count;) {
    const int32_t end = EndOfMergeableRun(begin, scratch);
    MergeSymbols(begin, end, scratch);
    begin = end;
  }
  for (const Scratch::Symbol& symbol : scratch.symbols) {
    if (symbol.alive) ids.push_back(symbol.id);
  }
}

}  // namespace tandem
