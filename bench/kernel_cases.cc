#include "bench/kernel_cases.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>

#include "base/status.h"

namespace tandem {
namespace {

constexpr int64_t kWeightBytes = int64_t{1} << 30;

constexpr int64_t kHidden = 1024;
constexpr int64_t kQueryHeads = 16;
constexpr int64_t kKvHeads = 8;
constexpr int64_t kHeadDim = 64;
constexpr int64_t kMlp = 2816;
constexpr int64_t kVocabulary = 32000;
constexpr int32_t kBlockTokens = 32;
constexpr int32_t kLayers = 24;

using Cases = std::vector<KernelCase>;

size_t NumElements(std::initializer_list<int64_t> shape) {
  return static_cast<size_t>(
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>()));
}

// The op of `args` on `ops`, which both outlive the case.
template <class Args>
void Add(Cases& cases, KernelArrays& arrays, std::string op, std::string shape,
         absl::Status (Ops::*method)(Stream&, const Args&), Args args) {
  cases.push_back({std::move(op), std::move(shape), Cost(args), [&arrays, method, args] {
                     return (arrays.ops().*method)(arrays.stream(), args);
                   }});
}

absl::Status AddGemm(KernelArrays& arrays, const PackedMatrix& weight, int64_t rows, Cases& cases) {
  GemmArgs args;
  ASSIGN_OR_RETURN(args.x, arrays.Floats({rows, weight.k}));
  ASSIGN_OR_RETURN(args.out, arrays.Floats({rows, weight.n}));
  args.weight = weight;
  const auto call = [&arrays, args]() mutable {
    const PackedMatrix& w = args.weight;
    const int64_t bytes = arrays.ops().PackedBytes(w.format, w.n, w.k);
    ASSIGN_OR_RETURN(args.weight.data, arrays.NextWeight(bytes));
    return arrays.ops().Gemm(arrays.stream(), args);
  };
  const std::string op =
      weight.format.has_codes() ? fmt::format("gemm_{}", Name(weight.format)) : "gemm";
  cases.push_back({op, fmt::format("M {} N {} K {}", rows, weight.n, weight.k), Cost(args), call});
  return absl::OkStatus();
}

absl::Status AddGemms(KernelArrays& arrays, Cases& cases) {
  constexpr std::pair<int64_t, int64_t> kShapes[] = {
      {2048, 1024}, {1024, 1024}, {5632, 1024}, {1024, 2816}, {32000, 1024}};
  for (const WeightFormat format :
       {WeightFormat(DType::kBF16), WeightFormat::Int8(), WeightFormat::F8E4M3()}) {
    for (const auto& [n, k] : kShapes) {
      for (int64_t rows : {1, 4, 8, 12, 16, 64, 512}) {
        if (n == kVocabulary && rows > 64) continue;
        RETURN_IF_ERROR(AddGemm(arrays, {nullptr, format, n, k}, rows, cases));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status AddPackWeight(KernelArrays& arrays, Cases& cases) {
  const int64_t bytes = arrays.ops().PackedBytes(DType::kBF16, 5632, kHidden);
  const auto call = [&arrays, bytes]() -> absl::Status {
    ASSIGN_OR_RETURN(std::byte * from, arrays.NextWeight(bytes));
    ASSIGN_OR_RETURN(std::byte * to, arrays.NextWeight(bytes));
    const TensorView sources[] = {TensorView(from, DType::kBF16, {5632, kHidden})};
    return arrays.ops().PackWeight(arrays.stream(), {to, DType::kBF16, 5632, kHidden}, sources);
  };
  cases.push_back(
      {"pack_weight", "N 5632 K 1024 bf16", {2.0 * static_cast<double>(bytes), 0}, call});
  return absl::OkStatus();
}

// A pool of all layers, which the attention of one step after the other walks through.
struct Sequences {
  std::vector<int32_t> query_starts = {0};
  std::vector<int32_t> context_lens;
  std::vector<int32_t> blocks;
  std::vector<int32_t> table_starts = {0};
};

absl::Status AddAttention(KernelArrays& arrays, Cases& cases) {
  struct Step {
    int32_t sequences;
    int32_t rows;  // of each sequence
    int32_t context;
    DType kv = DType::kBF16;
  };
  constexpr Step kSteps[] = {{1, 512, 512},
                             {1, 512, 2048},
                             {1, 512, 2048, DType::kF8E4M3},
                             {1, 1, 512},
                             {1, 1, 2048},
                             {8, 1, 2048},
                             {8, 1, 2048, DType::kF8E4M3},
                             {8, 1, 2048, DType::kK8V8},
                             {8, 1, 2048, DType::kK4V3},
                             {1, 512, 2048, DType::kK4V3}};
  for (const Step& step : kSteps) {
    const int32_t blocks = (step.context + kBlockTokens - 1) / kBlockTokens;
    auto sequences = std::make_shared<Sequences>();
    for (int32_t s = 0; s < step.sequences; ++s) {
      sequences->query_starts.push_back((s + 1) * step.rows);
      sequences->context_lens.push_back(step.context);
      sequences->table_starts.push_back((s + 1) * blocks);
    }
    sequences->blocks.resize(step.sequences * blocks);
    std::iota(sequences->blocks.begin(), sequences->blocks.end(), 0);

    AttentionArgs args;
    const int64_t rows = int64_t{step.sequences} * step.rows;
    ASSIGN_OR_RETURN(args.q, arrays.Floats({rows, kQueryHeads, kHeadDim}));
    ASSIGN_OR_RETURN(args.out, arrays.Floats({rows, kQueryHeads, kHeadDim}));
    args.pool = {nullptr,  step.kv,      kLayers, step.sequences * blocks,
                 kKvHeads, kBlockTokens, kHeadDim};
    ASSIGN_OR_RETURN(args.pool.data,
                     arrays.NextWeight(kLayers * args.pool.num_blocks * args.pool.ExtentBytes()));
    args.query_starts = sequences->query_starts;
    args.context_lens = sequences->context_lens;
    args.block_tables = {sequences->blocks, sequences->table_starts};
    args.scale = 0.125f;
    const bool prefill = step.rows > 1;
    const std::string shape = fmt::format("S {} q {} context {} {}", step.sequences, step.rows,
                                          step.context, Name(step.kv));
    const auto call = [&arrays, args, sequences, prefill]() mutable {
      args.layer = (args.layer + 1) % kLayers;
      return prefill ? arrays.ops().AttentionPrefill(arrays.stream(), args)
                     : arrays.ops().AttentionDecode(arrays.stream(), args);
    };
    cases.push_back({prefill ? "attention_prefill" : "attention_decode", shape, Cost(args), call});
    if (!prefill) continue;
    ColumnMassArgs mass = {.attention = args, .last_rows = 256};
    ASSIGN_OR_RETURN(mass.attention.lse, arrays.Constants({rows, kQueryHeads}, 4.0f));
    ASSIGN_OR_RETURN(mass.out, arrays.Floats({step.sequences, kKvHeads, step.context}));
    cases.push_back({"column_mass", shape, Cost(mass), [&arrays, mass, sequences]() mutable {
                       mass.attention.layer = (mass.attention.layer + 1) % kLayers;
                       return arrays.ops().ColumnMass(arrays.stream(), mass);
                     }});
  }
  return absl::OkStatus();
}

// What a transfer moves: extents of more memory than caches hold, plain and with their hashes.
absl::Status AddExtents(KernelArrays& arrays, Cases& cases) {
  struct Lists {
    std::vector<ExtentCopy> copies;
    std::vector<std::span<const std::byte>> sources;
    std::vector<uint64_t> hashes;
  };
  constexpr int64_t kBytes = int64_t{96} << 20;
  ASSIGN_OR_RETURN(const std::byte* const from, arrays.NextWeight(kBytes));
  ASSIGN_OR_RETURN(std::byte* const to, arrays.Bytes(kBytes));
  for (const int64_t kib : {16, 64, 256}) {
    const auto bytes = static_cast<size_t>(kib << 10);
    auto lists = std::make_shared<Lists>();
    for (size_t at = 0; at < static_cast<size_t>(kBytes); at += bytes) {
      lists->sources.push_back({from + at, bytes});
      lists->copies.push_back({{to + at, bytes}, lists->sources.back()});
    }
    lists->hashes.resize(lists->copies.size());
    const std::string shape = fmt::format("96 MiB by {} KiB", kib);
    const OpCost moved = {.bytes = 2.0 * kBytes};
    cases.push_back({"copy", shape, moved, [&arrays, lists] {
                       for (const ExtentCopy& copy : lists->copies) {
                         RETURN_IF_ERROR(arrays.stream().Copy(copy.dst, copy.src));
                       }
                       return absl::OkStatus();
                     }});
    cases.push_back({"copy_all", shape, moved, [&arrays, lists] {
                       return arrays.stream().CopyAll(lists->copies, lists->hashes);
                     }});
    cases.push_back({"hash_all", shape, {.bytes = 1.0 * kBytes}, [&arrays, lists] {
                       return arrays.stream().HashAll(lists->sources, lists->hashes);
                     }});
  }
  return absl::OkStatus();
}

absl::Status AddKvBlocks(KernelArrays& arrays, Cases& cases) {
  struct Lists {
    std::vector<int64_t> slots;
    std::vector<BlockPair> pairs;
    std::vector<LayerBlock> items;
    std::vector<int32_t> from;
    std::vector<int32_t> to;
  };
  static constexpr int32_t kTokens = 512;
  static constexpr int32_t kMoved = 16;
  auto lists = std::make_shared<Lists>();
  lists->slots.resize(kTokens);
  std::iota(lists->slots.begin(), lists->slots.end(), 0);
  for (int32_t i = 0; i < kMoved; ++i) {
    lists->pairs.push_back({i, kMoved + i});
    for (int32_t layer = 0; layer < kLayers; ++layer) lists->items.push_back({layer, i});
  }
  // Half of the tokens of the first blocks, as an eviction keeps them, in each KV head others.
  std::mt19937 rng(2);
  for (int32_t head = 0; head < kLayers * kKvHeads; ++head) {
    std::vector<int32_t> tokens(kMoved * kBlockTokens);
    std::iota(tokens.begin(), tokens.end(), 0);
    std::sample(tokens.begin(), tokens.end(), std::back_inserter(lists->from), kTokens / 2, rng);
  }
  lists->to.resize(kTokens / 2);
  std::iota(lists->to.begin(), lists->to.end(), kMoved * kBlockTokens);
  KvPoolView pool = {nullptr, DType::kBF16, kLayers, 2 * kMoved, kKvHeads, kBlockTokens, kHeadDim};
  ASSIGN_OR_RETURN(pool.data, arrays.NextWeight(kLayers * pool.num_blocks * pool.ExtentBytes()));
  const int64_t staging_bytes = static_cast<int64_t>(lists->items.size()) * pool.ExtentBytes();
  ASSIGN_OR_RETURN(std::byte * staging, arrays.Bytes(staging_bytes));

  StoreKvArgs store;
  ASSIGN_OR_RETURN(store.k, arrays.Floats({kTokens, kKvHeads, kHeadDim}));
  ASSIGN_OR_RETURN(store.v, arrays.Floats({kTokens, kKvHeads, kHeadDim}));
  store.slots = lists->slots;
  store.pool = pool;
  const CopyBlocksArgs copy = {pool, lists->pairs};
  const CopyTokensArgs copy_tokens = {pool, lists->from, lists->to};
  const MoveBlocksArgs move = {pool, lists->items, {staging, static_cast<size_t>(staging_bytes)}};
  cases.push_back({"store_kv", "T 512", Cost(store), [&arrays, lists, store] {
                     return arrays.ops().StoreKv(arrays.stream(), store);
                   }});
  Add(cases, arrays, "copy_blocks", "16 of 24 layers", &Ops::CopyBlocks, copy);
  cases.push_back(
      {"copy_tokens", "256 of 24 layers", Cost(copy_tokens), [&arrays, lists, copy_tokens] {
         return arrays.ops().CopyTokens(arrays.stream(), copy_tokens);
       }});
  Add(cases, arrays, "gather_blocks", "16 of 24 layers", &Ops::GatherBlocks, move);
  Add(cases, arrays, "scatter_blocks", "16 of 24 layers", &Ops::ScatterBlocks, move);
  return absl::OkStatus();
}

absl::Status AddRowOps(KernelArrays& arrays, Cases& cases, int64_t tokens) {
  const std::string shape = fmt::format("T {}", tokens);
  RmsNormArgs norm;
  ASSIGN_OR_RETURN(norm.x, arrays.Floats({tokens, kHidden}));
  ASSIGN_OR_RETURN(norm.weight, arrays.Floats({kHidden}));
  ASSIGN_OR_RETURN(norm.out, arrays.Floats({tokens, kHidden}));
  Add(cases, arrays, "rms_norm", shape, &Ops::RmsNorm, norm);

  RopeArgs rope;
  ASSIGN_OR_RETURN(rope.q, arrays.Floats({tokens, kQueryHeads, kHeadDim}));
  ASSIGN_OR_RETURN(rope.k, arrays.Floats({tokens, kKvHeads, kHeadDim}));
  // An eighth of a turn keeps the length of what is rotated in place, call after call.
  const float eighth = std::sqrt(0.5f);
  ASSIGN_OR_RETURN(rope.cos, arrays.Constants({tokens, kHeadDim / 2}, eighth));
  ASSIGN_OR_RETURN(rope.sin, arrays.Constants({tokens, kHeadDim / 2}, eighth));
  auto positions = std::make_shared<std::vector<int32_t>>(tokens);
  std::iota(positions->begin(), positions->end(), 0);
  rope.positions = *positions;
  cases.push_back({"rope", shape, Cost(rope), [&arrays, positions, rope] {
                     return arrays.ops().Rope(arrays.stream(), rope);
                   }});

  SiluMulArgs silu;
  ASSIGN_OR_RETURN(silu.gate_up, arrays.Floats({tokens, 2 * kMlp}));
  ASSIGN_OR_RETURN(silu.out, arrays.Floats({tokens, kMlp}));
  Add(cases, arrays, "silu_mul", shape, &Ops::SiluMul, silu);

  auto ids = std::make_shared<std::vector<int32_t>>(tokens);
  for (int64_t i = 0; i < tokens; ++i) (*ids)[i] = static_cast<int32_t>(i * 997 % kVocabulary);
  EmbeddingArgs embedding;
  embedding.token_ids = *ids;
  embedding.table = {nullptr, DType::kBF16, kVocabulary, kHidden};
  const int64_t bytes = arrays.ops().PackedBytes(DType::kBF16, kVocabulary, kHidden);
  ASSIGN_OR_RETURN(embedding.table.data, arrays.NextWeight(bytes));
  ASSIGN_OR_RETURN(embedding.out, arrays.Floats({tokens, kHidden}));
  cases.push_back({"embedding", shape, Cost(embedding), [&arrays, ids, embedding] {
                     return arrays.ops().Embedding(arrays.stream(), embedding);
                   }});
  return absl::OkStatus();
}

absl::Status AddSample(KernelArrays& arrays, Cases& cases) {
  struct Rows {
    std::vector<SampleRow> rows;
    std::vector<SampledToken> out;
  };
  constexpr int64_t kRows = 8;
  for (const float temperature : {0.0f, 0.8f}) {
    auto rows = std::make_shared<Rows>();
    SampleRow row;
    row.temperature = temperature;
    row.num_logprobs = -1;
    if (temperature > 0) row.top_p = 0.95f;
    rows->rows.assign(kRows, row);
    rows->out.resize(kRows);
    SampleArgs args;
    ASSIGN_OR_RETURN(args.logits, arrays.Floats({kRows, kVocabulary}));
    args.rows = rows->rows;
    args.out = rows->out;
    cases.push_back({"sample", temperature > 0 ? "R 8 top-p 0.95" : "R 8 greedy", Cost(args),
                     [&arrays, rows, args] { return arrays.ops().Sample(arrays.stream(), args); }});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<KernelArrays>> KernelArrays::Create(Backend backend) {
  std::unique_ptr<KernelArrays> arrays(new KernelArrays(std::move(backend)));
  ASSIGN_OR_RETURN(arrays->stream_, arrays->backend_.device->NewStream());
  ASSIGN_OR_RETURN(arrays->weights_, arrays->backend_.device->Allocate(kWeightBytes));
  RETURN_IF_ERROR(arrays->FillWeights());
  return arrays;
}

// bf16 of both signs and of magnitudes from 2^-8 to 2^-1, one random megabyte after the other. No
// byte is a NaN of e4m3.
absl::Status KernelArrays::FillWeights() {
  std::vector<uint16_t> pattern(size_t{1} << 19);
  for (uint16_t& bits : pattern) bits = static_cast<uint16_t>(0x3B80 + (rng_() & 0x83F7));
  const auto bytes = std::as_bytes(std::span(pattern));
  for (size_t at = 0; at < weights_.size(); at += bytes.size()) {
    RETURN_IF_ERROR(stream_->Copy(weights_.bytes().subspan(at, bytes.size()), bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> KernelArrays::Bytes(int64_t bytes) {
  ASSIGN_OR_RETURN(DeviceBuffer buffer, backend_.device->Allocate(static_cast<size_t>(bytes)));
  buffers_.push_back(std::move(buffer));
  return buffers_.back().data();
}

absl::StatusOr<TensorView> KernelArrays::Upload(std::initializer_list<int64_t> shape,
                                                std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  ASSIGN_OR_RETURN(std::byte * data, Bytes(static_cast<int64_t>(bytes.size())));
  RETURN_IF_ERROR(stream_->Copy({data, bytes.size()}, bytes));
  return TensorView(data, DType::kF32, shape);
}

absl::StatusOr<TensorView> KernelArrays::Floats(std::initializer_list<int64_t> shape) {
  std::vector<float> values(NumElements(shape));
  std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
  for (float& value : values) value = uniform(rng_);
  return Upload(shape, values);
}

absl::StatusOr<TensorView> KernelArrays::Constants(std::initializer_list<int64_t> shape,
                                                   float value) {
  return Upload(shape, std::vector<float>(NumElements(shape), value));
}

absl::StatusOr<std::byte*> KernelArrays::NextWeight(int64_t bytes) {
  if (bytes > kWeightBytes) {
    return InvalidArgument("a case reads {} bytes of weights or KV: the most is {}", bytes,
                           kWeightBytes);
  }
  if (weight_offset_ + bytes > kWeightBytes) weight_offset_ = 0;
  std::byte* data = weights_.data() + weight_offset_;
  weight_offset_ += (bytes + 63) / 64 * 64;
  return data;
}

absl::StatusOr<std::vector<KernelCase>> AllKernelCases(KernelArrays& arrays) {
  Cases cases;
  RETURN_IF_ERROR(AddGemms(arrays, cases));
  RETURN_IF_ERROR(AddPackWeight(arrays, cases));
  RETURN_IF_ERROR(AddAttention(arrays, cases));
  RETURN_IF_ERROR(AddKvBlocks(arrays, cases));
  RETURN_IF_ERROR(AddExtents(arrays, cases));
  RETURN_IF_ERROR(AddRowOps(arrays, cases, 1));
  RETURN_IF_ERROR(AddRowOps(arrays, cases, 512));
  RETURN_IF_ERROR(AddSample(arrays, cases));
  return cases;
}

}  // namespace tandem
