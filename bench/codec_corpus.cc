#include "bench/codec_corpus.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/status.h"
#include "bench/model_session.h"
#include "model/tokenizer/tokenizer.h"

namespace tandem {
namespace {

absl::StatusOr<std::vector<int32_t>> TokensOf(const Tokenizer& tokenizer, const std::string& path,
                                              int32_t most) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer.Encode(text, {}));
  ids.resize(std::min(ids.size(), static_cast<size_t>(most)));
  return ids;
}

}  // namespace

absl::StatusOr<Corpus> PrefillTexts(const std::string& model, const std::vector<std::string>& paths,
                                    int32_t most_tokens) {
  ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(model));
  ASSIGN_OR_RETURN(const auto session,
                   ModelSession::Open({.directory = model, .max_context_tokens = most_tokens}));
  const KvPoolView& pool = session->pool();
  Corpus corpus = {.shape = {pool.dtype, pool.num_kv_heads, pool.head_dim, pool.block_tokens},
                   .num_layers = pool.num_layers,
                   .prompts = {}};
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, TokensOf(*tokenizer, path, most_tokens));
    Prompt prompt = {.name = path, .bytes = {}};
    prompt.num_blocks = static_cast<int32_t>(ids.size()) / pool.block_tokens;
    if (prompt.num_blocks == 0) return InvalidArgument("{}: too little text for a block", path);
    RETURN_IF_ERROR(session->Prefill(ids).status());
    for (int32_t layer = 0; layer < corpus.num_layers; ++layer) {
      for (int32_t block = 0; block < prompt.num_blocks; ++block) {
        const auto extent = session->Extent(layer, block);
        prompt.bytes.insert(prompt.bytes.end(), extent.begin(), extent.end());
      }
    }
    corpus.prompts.push_back(std::move(prompt));
  }
  if (corpus.prompts.size() < 2) return InvalidArgument("--texts: give at least two files");
  return corpus;
}

}  // namespace tandem
