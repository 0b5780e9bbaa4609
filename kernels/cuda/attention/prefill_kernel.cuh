#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/attention/prefill_config.cuh"
#include "kernels/cuda/attention/prefill_tile.cuh"
#include "kernels/cuda/launch.cuh"

// Prefill attention by mma.sync, for every architecture. A thread block owns a tile of packed query
// rows, a warp a quarter of them, and walks over tiles of keys. K and V tiles follow one another
// through a ring of shared memory that is filled two ahead, with one block barrier for each.

namespace tandem::cuda {

template <class C>
class PrefillBlock {
 public:
  using Type = typename C::Type;
  using Scores = float[C::kMTiles][C::kNTiles][4];
  using Weights = uint32_t[C::kMTiles][C::kNTiles][2];  // packed pairs for each row

  __device__ __forceinline__ PrefillBlock(const PrefillParams& params, const TileView& view,
                                          SpoiledKeys<C::kKeys>& spoiled)
      : p_(params),
        view_(view),
        key_begin_(Uniform(view.tile.key_begin)),
        key_end_(Uniform(view.tile.key_end)),
        all_see_begin_(Uniform(view.all_see_begin)),
        all_see_end_(Uniform(view.all_see_end)),
        kv_head_(Uniform(view.tile.kv_head)),
        num_rows_(Uniform(view.tile.row_end - view.tile.row_begin)),
        spoiled_(spoiled),
        shared_(ptx::DynamicShared<unsigned char>()),
        warp_(Uniform(static_cast<int>(threadIdx.x) / kWarpLanes)),
        lane_(static_cast<int>(threadIdx.x) % kWarpLanes),
        sums_{} {}

  __device__ __forceinline__ void Run() {
    block_ = view_.BlockOf(p_, WarpKey(0));
    const int32_t next = view_.BlockOf(p_, WarpKey(1));
    CopyQueryTile();
    Copy(0);
    Copy(1);
    block_ = next;
    for (int i = 0; HasTile(i); ++i) {
      const int key = TileKey(i);
      if (key >= all_see_begin_ && key + C::kKeys <= all_see_end_) {
        Step<false>(i);
      } else {
        Step<true>(i);
      }
    }
    ptx::CpAsyncWait<0>();
    Store();
  }

 private:
  // x, which must be the same in all lanes: after a shuffle the compiler knows that, and branches
  // do not diverge.
  static __device__ __forceinline__ int Uniform(int x) { return __shfl_sync(kAllLanes, x, 0); }

  // ---- where data lies

  static constexpr int kTileRowBytes = C::kDim * 2;
  using Pairs = SwizzledPairs<C::kDim / 8>;

  // The byte offset of a chunk in a tile. A warp's keys start at a multiple of 8 rows, so that
  // offsets from there swizzle alike.
  static __device__ __forceinline__ int TileByte(int row, int chunk) {
    return SwizzledChunk<C::kDim / 8>(row, chunk) * kChunkBytes;
  }
  __device__ __forceinline__ int TileKey(int i) const { return key_begin_ + i * C::kKeys; }
  __device__ __forceinline__ bool HasTile(int i) const { return TileKey(i) < key_end_; }
  __device__ __forceinline__ int WarpKey(int i) const { return TileKey(i) + warp_ * C::kWarpKeys; }
  // Half step 2i is the K of tile i, 2i + 1 its V. Slots are what copies fill, tiles what products
  // read.
  __device__ __forceinline__ unsigned char* Slot(int half) const {
    return shared_ + C::kQueryBytes +
           (C::kFp8 ? half % 2 * C::kRawBytes : half % 3 * C::kTileBytes);
  }
  __device__ __forceinline__ unsigned char* Tile(int half) const {
    if constexpr (C::kFp8) {
      return shared_ + C::kQueryBytes + 2 * C::kRawBytes + half % 2 * C::kTileBytes;
    } else {
      return Slot(half);
    }
  }
  // PassRow, PassChunk and PassByte describe the 16 bytes of the pool that this lane moves in a
  // pass: which of the warp's keys, which chunk of its row, where in the warp's part of the slot.
  __device__ __forceinline__ int PassRow(int pass) const {
    return (pass * kWarpLanes + lane_) / (C::kRowBytes / kChunkBytes);
  }
  __device__ __forceinline__ int PassChunk(int pass) const {
    return (pass * kWarpLanes + lane_) % (C::kRowBytes / kChunkBytes);
  }
  __device__ __forceinline__ int PassByte(int pass) const {
    if constexpr (C::kFp8) {
      return pass * C::kPassBytes + lane_ * kChunkBytes;
    } else if constexpr (C::kPassBytes % C::kRowBytes == 0) {
      // From pass to pass a lane's place differs by whole keys and in the swizzle alone.
      constexpr int kPassKeys = C::kPassBytes / C::kRowBytes;
      const int swizzle = pass * kPassKeys % 8 * kChunkBytes;
      return (TileByte(PassRow(0), PassChunk(0)) ^ swizzle) + pass * C::kPassBytes;
    } else {
      return TileByte(PassRow(pass), PassChunk(pass));
    }
  }
  __device__ __forceinline__ bool HasRows() const { return warp_ * C::kWarpRows < num_rows_; }
  // The packed row of a lane: of each 16 rows it has rows lane / 4 (upper is 0) and lane / 4 + 8
  // (upper is 1).
  __device__ __forceinline__ int PackedRow(int m, int upper) const {
    return view_.tile.row_begin + warp_ * C::kWarpRows + m * 16 + upper * 8 + lane_ / 4;
  }

  // ---- copies

  // Starts the copy of a half step, if there is one, as one group. A warp's keys lie one behind the
  // other in a block of the pool.
  __device__ __forceinline__ void Copy(int half) {
    const int i = half / 2;
    if (HasTile(i)) {
      const unsigned char* from = p_.kv.Keys(block_, kv_head_, WarpKey(i)) +
                                  half % 2 * p_.kv.value_bytes + lane_ * kChunkBytes;
      unsigned char* slot = Slot(half) + warp_ * C::kWarpKeys * C::kRowBytes;
#pragma unroll
      for (int pass = 0; pass < C::kPasses; ++pass) {
        ptx::CpAsync16(slot + PassByte(pass), from + pass * C::kPassBytes);
      }
    }
    ptx::CpAsyncCommit();
  }

  // Starts the copy two half steps ahead, and with a V looks up the block after it.
  __device__ __forceinline__ void CopyAhead(int half) {
    Copy(half + 2);
    if (half % 2 == 1) block_ = view_.BlockOf(p_, WarpKey(half / 2 + 2));
  }

  // Widens the fp8 chunks of a half step that this lane copied to f16.
  __device__ __forceinline__ void Widen(int half) {
    const unsigned char* slot = Slot(half) + warp_ * C::kWarpKeys * C::kRowBytes;
    unsigned char* tile = Tile(half) + warp_ * C::kWarpKeys * C::kDim * 2;
#pragma unroll
    for (int pass = 0; pass < C::kPasses; ++pass) {
      uint4 wide[2];
      WidenF8(*reinterpret_cast<const uint4*>(slot + PassByte(pass)), wide);
      const int row = PassRow(pass);
      const int chunk = 2 * PassChunk(pass);
      *reinterpret_cast<uint4*>(tile + TileByte(row, chunk)) = wide[0];
      *reinterpret_cast<uint4*>(tile + TileByte(row, chunk + 1)) = wide[1];
    }
  }

  // Waits until the tile of a half step lies where all products read it, and starts the next copy
  // into the slot that is free by now: for fp8 the one that this lane alone has just read, else the
  // one that all products read before the barrier.
  template <bool kWiden = C::kFp8>
  __device__ __forceinline__ void Arrive(int half) {
    // Addresses are cheaper to compute again than to keep: registers are what this kernel lacks.
    lane_ = ptx::Opaque(lane_) & (kWarpLanes - 1);  // the mask shows that it is not negative
    ptx::CpAsyncWait<1>();
    if constexpr (kWiden) Widen(half);
    if constexpr (C::kFp8) CopyAhead(half);
    __syncthreads();
    if constexpr (!C::kFp8) CopyAhead(half);
  }

  // Replaces what is not finite in tile i of V by 0, each lane in the chunks that it copied, before
  // the scores are masked.
  __device__ __forceinline__ void CleanseValues(int i) {
    const int half = 2 * i + 1;
    unsigned char* tile = Tile(half) + warp_ * C::kWarpKeys * C::kDim * 2;
    ptx::CpAsyncWait<1>();
    if constexpr (C::kFp8) Widen(half);
#pragma unroll 1
    for (int pass = 0; pass < C::kPasses; ++pass) {
      const int row = PassRow(pass);
      bool spoiled;
      if constexpr (C::kFp8) {
        const int chunk = 2 * PassChunk(pass);
        spoiled = Cleanse<Type>(tile + TileByte(row, chunk));
        spoiled |= Cleanse<Type>(tile + TileByte(row, chunk + 1));
      } else {
        spoiled = Cleanse<Type>(tile + PassByte(pass));
      }
      if (spoiled) spoiled_.last_tile = spoiled_.tile_of[warp_ * C::kWarpKeys + row] = i;
    }
    __syncthreads();
  }

  // Copies the tile's rows of Q, in the group of the first half step. Rows past the end of the tile
  // repeat its last row; their results are not stored.
  __device__ __forceinline__ void CopyQueryTile() {
    constexpr int kPerRow = C::kDim / 8;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < C::kRows * kPerRow; i += kPrefillThreads) {
      const int row = i / kPerRow;
      const int packed = min(view_.tile.row_begin + row, view_.tile.row_end - 1);
      CopyQueries<Type>(p_, view_.RowIndex(p_, packed, C::kDim, p_.q_stride) + i % kPerRow * 8,
                        shared_ + TileByte(row, i % kPerRow));
    }
  }

  // ---- products and softmax

  __device__ __forceinline__ void MultiplyKeys(const unsigned char* keys, Scores& s) const {
    const Pairs query_pairs(lane_ % 16, lane_ / 16);
    const Pairs key_pairs(lane_ / 16 * 8 + lane_ % 8, lane_ / 8 % 2);
    const unsigned char* queries = shared_ + warp_ * C::kWarpRows * kTileRowBytes;
#pragma unroll(C::kScoreUnroll)
    for (int k = 0; k < C::kDim / 16; ++k) {
      uint32_t a[C::kMTiles][4];
#pragma unroll
      for (int m = 0; m < C::kMTiles; ++m) {
        ptx::LdMatrixX4(a[m], queries + query_pairs.At(2 * k) + m * 16 * kTileRowBytes);
      }
#pragma unroll
      for (int n = 0; n < C::kNTiles; n += 2) {
        uint32_t b[4];
        ptx::LdMatrixX4(b, keys + key_pairs.At(2 * k) + n * 8 * kTileRowBytes);
#pragma unroll
        for (int m = 0; m < C::kMTiles; ++m) {
          Mma<Type>(s[m][n], a[m], b[0], b[1]);
          Mma<Type>(s[m][n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  __device__ __forceinline__ void Cap(Scores& s) const {
#pragma unroll
    for (int m = 0; m < C::kMTiles; ++m) {
#pragma unroll
      for (int j = 0; j < 4 * C::kNTiles; ++j) {
        s[m][j / 4][j % 4] = p_.rule.Logit2(s[m][j / 4][j % 4]);
      }
    }
  }

  __device__ __forceinline__ void Mask(int i, Scores& s) const {
#pragma unroll
    for (int row = 0; row < 2 * C::kMTiles; ++row) {
      const int packed = min(PackedRow(row / 2, row % 2), view_.tile.row_end - 1);
      const int last = view_.LastSeen(p_, packed) - TileKey(i) - lane_ % 4 * 2;
      const int before = p_.window > 0 ? last - p_.window : -C::kKeys;
#pragma unroll
      for (int j = 0; j < 2 * C::kNTiles; ++j) {
        const int key = j / 2 * 8 + j % 2;
        float& score = s[row / 2][j / 2][row % 2 * 2 + j % 2];
        if (key > last || key <= before) score = -kInfinity;
      }
    }
    if (spoiled_.last_tile == i) Spoil(i, s);
  }

  // Gives the rows that see a spoiled key (SpoiledKeys) NaN for its score.
  __device__ __forceinline__ void Spoil(int i, Scores& s) const {
#pragma unroll
    for (int j = 0; j < 2 * C::kNTiles; ++j) {
      const int key = j / 2 * 8 + lane_ % 4 * 2 + j % 2;
      if (spoiled_.tile_of[key] != i) continue;
#pragma unroll
      for (int row = 0; row < 2 * C::kMTiles; ++row) {
        float& score = s[row / 2][j / 2][row % 2 * 2 + j % 2];
        if (score != -kInfinity) score = __int_as_float(0x7fffffff);
      }
    }
  }

  // Turns scores into weights, for which it raises the maxima of the rows.
  __device__ __forceinline__ void Softmax(Scores& s, Weights& weights) {
#pragma unroll
    for (int row = 0; row < 2 * C::kMTiles; ++row) {
      const int m = row / 2;
      const int r = row % 2 * 2;
      float max = -kInfinity;
#pragma unroll
      for (int n = 0; n < C::kNTiles; ++n) max = fmaxf(max, fmaxf(s[m][n][r], s[m][n][r + 1]));
      float base;
      const float rescale = rows_[row].Raise(QuadMax(max), p_.score_scale, base);
#pragma unroll
      for (int n = 0; n < C::kNTiles; ++n) {
        const float first = ptx::Exp2((s[m][n][r] - base) * p_.score_scale);
        const float second = ptx::Exp2((s[m][n][r + 1] - base) * p_.score_scale);
        rows_[row].sum += first + second;
        // The weights are packed here, since after the next barrier the copies need the registers.
        weights[m][n][row % 2] = OpaquePair(Pack<Type>(first, second));
      }
#pragma unroll
      for (int d = 0; d < C::kDim / 8; ++d) {
        sums_[m][d][r] *= rescale;
        sums_[m][d][r + 1] *= rescale;
      }
    }
  }
  static __device__ __forceinline__ uint32_t OpaquePair(uint32_t pair) {
    return static_cast<uint32_t>(ptx::Opaque(static_cast<int>(pair)));
  }

  __device__ __forceinline__ void MultiplyValues(const unsigned char* values, const Weights& w) {
    const Pairs value_pairs(lane_ % 16, lane_ / 16);
#pragma unroll
    for (int k = 0; k < C::kKeys / 16; ++k) {
      uint32_t a[C::kMTiles][4];
#pragma unroll
      for (int m = 0; m < C::kMTiles; ++m) {
#pragma unroll
        for (int j = 0; j < 4; ++j) a[m][j] = w[m][2 * k + j / 2][j % 2];
      }
#pragma unroll
      for (int d = 0; d < C::kDim / 8; d += 2) {
        uint32_t b[4];
        ptx::LdMatrixX4Trans(b, values + value_pairs.At(d) + k * 16 * kTileRowBytes);
#pragma unroll
        for (int m = 0; m < C::kMTiles; ++m) {
          Mma<Type>(sums_[m][d], a[m], b[0], b[1]);
          Mma<Type>(sums_[m][d + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  // Multiplies with key tile i. kMasked: not every row sees every key of the tile.
  template <bool kMasked>
  __device__ __forceinline__ void Step(int i) {
    Arrive(2 * i);
    if constexpr (kMasked) CleanseValues(i);
    Weights weights;
    if (HasRows()) {
      Scores s = {};
      MultiplyKeys(Tile(2 * i), s);
      if (p_.rule.cap != 0) Cap(s);
      if constexpr (kMasked) Mask(i, s);
      Softmax(s, weights);
    }
    Arrive<C::kFp8 && !kMasked>(2 * i + 1);
    if (HasRows()) MultiplyValues(Tile(2 * i + 1), weights);
  }

  // ---- results

  __device__ __forceinline__ void Store() {
#pragma unroll
    for (int row = 0; row < 2 * C::kMTiles; ++row) {
      const SoftmaxRow state = {rows_[row].max, QuadSum(rows_[row].sum)};
      const int packed = PackedRow(row / 2, row % 2);
      if (packed >= view_.tile.row_end) continue;
      StoreRow<C::kRows, C::kDim>(p_, view_, packed, state, [&](int d) {
        const float(&quad)[4] = sums_[row / 2][d];
        return make_float2(quad[row % 2 * 2], quad[row % 2 * 2 + 1]);
      });
    }
  }

  const PrefillParams& p_;
  const TileView& view_;
  // Members of view_, kept in registers.
  const int key_begin_;
  const int key_end_;
  const int all_see_begin_;
  const int all_see_end_;
  const int kv_head_;
  const int num_rows_;
  SpoiledKeys<C::kKeys>& spoiled_;
  unsigned char* const shared_;
  const int warp_;
  int lane_;
  int32_t block_;  // of the pool, with this warp's keys of the tile copied next
  SoftmaxRow rows_[2 * C::kMTiles];
  float sums_[C::kMTiles][C::kDim / 8][4];
};

template <class C>
__global__ void __launch_bounds__(kPrefillThreads, kPrefillBlocksPerSm)
    PrefillKernel(PrefillParams p) {
  __shared__ TileView view;
  __shared__ SpoiledKeys<C::kKeys> spoiled;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < C::kKeys) spoiled.tile_of[thread] = -1;
  if (thread == 0) spoiled.last_tile = -1;
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();
  if (thread == 0) view = MakeTileView(p, p.tiles[blockIdx.x]);
  __syncthreads();
  PrefillBlock<C>(p, view, spoiled).Run();
}

// Launches the kernel. Math is what tensor cores multiply; the pool is of that type or, with kFp8,
// of fp8.
template <class Math, bool kFp8>
cudaError_t LaunchPrefill(const LaunchTarget& on, const AttentionArgs& args,
                          const PrefillWork& work) {
  return WithPrefillHeadDim<Math, kFp8>(args.pool.head_dim, [&](auto config) {
    using C = decltype(config);
    const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(work.num_tiles)),
                               .block = dim3(kPrefillThreads),
                               .shared_bytes = C::kSharedBytes,
                               .after_previous = true};
    return Launch(PrefillKernel<C>, shape, on.stream, MakePrefillParams(args, work));
  });
}

}  // namespace tandem::cuda
