#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/attention/prefill_tile.cuh"
#include "kernels/cuda/launch.cuh"

// Prefill attention by wgmma, for sm_90a. One thread block per SM takes tiles of the work list in
// turn. Of its three warpgroups the first brings K and V from the pool, the other two compute: each
// has 64 packed rows and multiplies Q by the next K while it is still in the softmax of the tile
// before, and the two alternate, so that one's softmax runs beside the other's products.
// K and V each have a ring of three tiles: one in use, one full or nearly so, one whose copy has
// just begun. A ring's slot is full when the 64 threads that copy into it have arrived at its
// barrier, and empty when the eight computing warps have.

namespace tandem::cuda {
namespace {

constexpr int kGroupThreads = 128;
constexpr int kComputeGroups = 2;
constexpr int kThreads = kGroupThreads * (1 + kComputeGroups);
constexpr int kGroupRows = 64;
constexpr int kRows = kGroupRows * kComputeGroups;
constexpr int kKeys = 128;
// Copying warps declare a tile full only after they have begun the next one, which needs a free
// slot. With two slots that would be the slot that a computing group frees only after the tile is
// full, because its softmax waits for V.
constexpr int kSlots = 3;
constexpr int kCopyWarps = 2;  // warps that copy K, and as many that copy V
constexpr int kSlabKeys = 16;  // keys of a slab, which lie in one block of the pool
constexpr int kPanelDim = 64;  // columns that a swizzle of 128 bytes spans
constexpr int kPanelRowBytes = 128;
constexpr int kPanelBytes = kKeys * kPanelRowBytes;  // a panel of Q, K or V
constexpr int kSwizzle128 = 1;
constexpr int kGroupOfRowsBytes = 8 * kPanelRowBytes;
static_assert(kRows == kKeys, "tiles of Q, K and V have one layout");

// Registers per thread: the copying warpgroup gives some up, which the computing warpgroups get.
constexpr int kCopyRegisters = 72;
constexpr int kComputeRegisters = 216;

// Ids of the named barriers, to which the number of the computing warpgroup is added.
constexpr int kTurnBarrier = 1;   // + compute group: its turn to multiply
constexpr int kQueryBarrier = 3;  // + compute group: its rows of Q are in place

template <int D>
struct HopperShared {
  static constexpr int kTileBytes = D / kPanelDim * kPanelBytes;
  static constexpr int kBytes = kTileBytes * (1 + 2 * kSlots);  // Q, then the rings of K and of V
};

// The barriers of a ring's slots; ring 0 is that of K, ring 1 that of V.
struct Ring {
  uint64_t full[kSlots];
  uint64_t empty[kSlots];
};

struct Control {
  Ring rings[2];
  TileView views[2 * kCopyWarps];      // of each copying warp, which lacks registers for it
  SpoiledKeys<kKeys> spoiled[kSlots];  // indexed by the slot of V's ring
};

// The parity of the phase of a slot's `full` barrier that ends once tile n of the ring is copied.
__device__ __forceinline__ uint32_t FullParity(int n) {
  return static_cast<uint32_t>(n / kSlots % 2);
}

// The byte offset of a chunk of 8 elements in a tile of Q, K or V, which consists of panels of 64
// columns, swizzled as wgmma reads them.
__device__ __forceinline__ int PanelByte(int row, int chunk) {
  return chunk / 8 * kPanelBytes + row * kPanelRowBytes + ((chunk & 7) ^ (row & 7)) * kChunkBytes;
}

// The index in the work list of the tile that this block takes in a round. Every other round goes
// through the blocks backwards, which with tiles sorted by cost gives all blocks nearly the same.
__device__ __forceinline__ int WorkItem(int round) {
  const auto blocks = static_cast<int>(gridDim.x);
  const auto block = static_cast<int>(blockIdx.x);
  return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
}

__device__ __forceinline__ int NumKeyTiles(const TileView& view) {
  return (view.tile.key_end - view.tile.key_begin + kKeys - 1) / kKeys;
}
// Whether every row of the tile sees every key of key tile i.
__device__ __forceinline__ bool AllSee(const TileView& view, int i) {
  const int key = view.tile.key_begin + i * kKeys;
  return key >= view.all_see_begin && key + kKeys <= view.all_see_end;
}

// ---- the copying warpgroup

template <class Type, int D>
class Copier {
 public:
  __device__ __forceinline__ Copier(const PrefillParams& params, Control& control, int thread)
      : p_(params),
        control_(control),
        ring_(thread / (kCopyWarps * kWarpLanes)),
        first_key_(thread / kWarpLanes % kCopyWarps * kWarpKeys),
        lane_(thread % kWarpLanes),
        first_byte_(PanelByte(first_key_ + lane_ / kRowChunks, lane_ % kRowChunks)),
        slots_(ptx::DynamicShared<unsigned char>() +
               HopperShared<D>::kTileBytes * (1 + ring_ * kSlots)) {}

  __device__ __forceinline__ void Run(int num_tiles) {
    for (int round = 0, item; (item = WorkItem(round)) < num_tiles; ++round) {
      const TileView& view = ReadView(item);
      int32_t blocks = SlabBlocks(view, 0);
      for (int i = 0, count = NumKeyTiles(view); i < count; ++i) {
        const int32_t next_blocks = SlabBlocks(view, i + 1);
        StartTile(view, i, blocks);
        if (i > 0) FinishTile<1>(view, i - 1, used_ - 2);
        blocks = next_blocks;
      }
      FinishTile<0>(view, NumKeyTiles(view) - 1, used_ - 1);
    }
  }

 private:
  static constexpr int kWarpKeys = kKeys / kCopyWarps;
  static constexpr int kSlabs = kWarpKeys / kSlabKeys;
  static constexpr int kRowChunks = D / 8;
  static constexpr int kPassKeys = kWarpLanes / kRowChunks;  // keys that a warp copies at a time
  static constexpr int kPasses = kSlabKeys / kPassKeys;      // of a warp over the keys of a slab
  static constexpr int kCleansedAtOnce = 4;                  // chunks that a lane looks at
  static_assert(kPasses % kCleansedAtOnce == 0);
  static_assert(kPassKeys * kRowChunks == kWarpLanes && 8 % kPassKeys == 0,
                "whole keys, within a group of rows that is swizzled");

  __device__ __forceinline__ const TileView& ReadView(int item) {
    TileView& view = control_.views[ring_ * kCopyWarps + first_key_ / kWarpKeys];
    __syncwarp();
    if (lane_ == 0) view = MakeTileView(p_, p_.tiles[item]);
    __syncwarp();
    return view;
  }

  // Returns, in lane s, the block of the pool that holds this warp's slab s of key tile i.
  __device__ __forceinline__ int32_t SlabBlocks(const TileView& view, int i) const {
    const int key = view.tile.key_begin + i * kKeys + first_key_;
    return view.BlockOf(p_, key + lane_ % kSlabs * kSlabKeys);
  }

  __device__ __forceinline__ unsigned char* SlotOf(int n) const {
    return slots_ + n % kSlots * HopperShared<D>::kTileBytes;
  }

  // Starts to copy key tile i as the next tile of the ring, once its slot is free.
  __device__ __forceinline__ void StartTile(const TileView& view, int i, int32_t blocks) {
    ptx::MbarrierWait(&control_.rings[ring_].empty[used_ % kSlots], FullParity(used_) ^ 1);
    unsigned char* tile = SlotOf(used_);
    const int key = view.tile.key_begin + i * kKeys + first_key_;
    const int kv_head = view.tile.kv_head;
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      const int32_t block = __shfl_sync(kAllLanes, blocks, slab);
      const unsigned char* from = p_.kv.Keys(block, kv_head, key + slab * kSlabKeys) +
                                  ring_ * p_.kv.value_bytes + lane_ * kChunkBytes;
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        ptx::CpAsync16(tile + ChunkByte(slab, pass), from + pass * kWarpLanes * kChunkBytes);
      }
    }
    ptx::CpAsyncCommit();
    ++used_;
  }

  // Waits for the copy of key tile i, which is tile n of the ring, while those of the kLater tiles
  // behind it go on, and declares the tile full.
  template <int kLater>
  __device__ __forceinline__ void FinishTile(const TileView& view, int i, int n) {
    ptx::CpAsyncWait<kLater>();
    if (ring_ == 1 && !AllSee(view, i)) CleanseTile(n);
    // wgmma reads shared memory through the asynchronous proxy, these threads have written without
    // it.
    ptx::FenceProxyAsync();
    ptx::MbarrierArrive(&control_.rings[ring_].full[n % kSlots]);
  }

  // The byte offset in a tile of the chunk that this lane copies in a pass over a slab. The swizzle
  // changes from pass to pass, but not from slab to slab.
  __device__ __forceinline__ int ChunkByte(int slab, int pass) const {
    const int swizzle = pass * kPassKeys % 8 * kChunkBytes;
    return (first_byte_ ^ swizzle) + (slab * kSlabKeys + pass * kPassKeys) * kPanelRowBytes;
  }

  // Replaces what is not finite in tile n of V by 0 and notes its keys; each lane looks at the
  // chunks that it has copied. The tile is full only after that, and the softmax of the rows waits
  // for it: hence several loads at once.
  __device__ __forceinline__ void CleanseTile(int n) {
    const unsigned char* tile = SlotOf(n);
#pragma unroll 1
    for (int slab = 0; slab < kSlabs; ++slab) {
#pragma unroll 1
      for (int first = 0; first < kPasses; first += kCleansedAtOnce) {
        uint4 chunks[kCleansedAtOnce];
#pragma unroll
        for (int j = 0; j < kCleansedAtOnce; ++j) {
          chunks[j] = *reinterpret_cast<const uint4*>(tile + ChunkByte(slab, first + j));
        }
#pragma unroll
        for (int j = 0; j < kCleansedAtOnce; ++j) {
          if (AnyNotFinite<Type>(chunks[j])) Spoil(n, slab, first + j);
        }
      }
    }
  }

  __device__ __forceinline__ void Spoil(int n, int slab, int pass) {
    *reinterpret_cast<uint4*>(SlotOf(n) + ChunkByte(slab, pass)) = make_uint4(0, 0, 0, 0);
    SpoiledKeys<kKeys>& spoiled = control_.spoiled[n % kSlots];
    const int key = slab * kSlabKeys + pass * kPassKeys + lane_ / kRowChunks;
    spoiled.last_tile = spoiled.tile_of[first_key_ + key] = n;
  }

  const PrefillParams& p_;
  Control& control_;
  const int ring_;
  const int first_key_;  // the first key of this warp in each tile
  const int lane_;
  const int first_byte_;  // offset in a tile of the first chunk that this lane copies
  unsigned char* const slots_;
  int used_ = 0;  // tiles whose copies were started, of all work items
};

// ---- a computing warpgroup

template <class Type, int D>
class Computer {
 public:
  __device__ __forceinline__ Computer(const PrefillParams& params, Control& control, int thread)
      : p_(params),
        control_(control),
        shared_(ptx::DynamicShared<unsigned char>()),
        group_(__shfl_sync(kAllLanes, thread / kGroupThreads, 0)),
        thread_(thread % kGroupThreads),
        lane_(thread % kWarpLanes) {}

  __device__ __forceinline__ void Run(int num_tiles) {
    bool paired = false;
    if (group_ == 1) ptx::NamedBarrierArrive(kTurnBarrier, kComputeGroups * kGroupThreads);
    for (int round = 0, item; (item = WorkItem(round)) < num_tiles; ++round) {
      const TileView view = MakeTileView(p_, p_.tiles[item]);
      const int rows = view.tile.row_end - view.tile.row_begin;
      paired = rows > kGroupRows;
      if (group_ * kGroupRows < rows) {
        Attend(view, paired);
      } else {
        Skip(view);
      }
    }
    // Group 1 has arrived at group 0's turn barrier once more than group 0 has waited there: this
    // wait leaves the barrier as it was found.
    if (group_ == 0) ptx::NamedBarrierSync(kTurnBarrier, kComputeGroups * kGroupThreads);
  }

 private:
  static constexpr int kTileBytes = HopperShared<D>::kTileBytes;
  static constexpr int kScores = kKeys / 2;  // per thread: two rows of a quarter of the keys
  static constexpr int kSums = D / 2;

  __device__ __forceinline__ uint64_t* Full(int ring, int n) {
    return &control_.rings[ring].full[n % kSlots];
  }
  __device__ __forceinline__ void AwaitTile(int ring, int n) {
    ptx::MbarrierWait(Full(ring, n), FullParity(n));
  }
  // Releases the slot of tile n of a ring, once this warp has seen the products with it end.
  __device__ __forceinline__ void Release(int ring, int n) {
    if (lane_ == 0) ptx::MbarrierArrive(&control_.rings[ring].empty[n % kSlots]);
  }

  // Goes through the key tiles of a work item in which this group has no row, to release their
  // slots.
  __device__ __forceinline__ void Skip(const TileView& view) {
    for (int i = 0, count = NumKeyTiles(view); i < count; ++i, ++used_) {
      for (int ring = 0; ring < 2; ++ring) {
        AwaitTile(ring, used_);
        Release(ring, used_);
      }
    }
  }

  __device__ __forceinline__ void Attend(const TileView& view, bool paired) {
    LoadQueryRows(view);
    const int count = NumKeyTiles(view);
    float scores[kScores];
    float sums[kSums] = {};
    uint32_t weights[kKeys / 16][4];
    SoftmaxRow rows[2];
    float rescale[2];
    AwaitTile(0, used_);
    MultiplyKeys(used_, scores);
    ptx::WgmmaWait<0>();
    ptx::WgmmaFenceOperands(scores);
    Release(0, used_);
    Softmax(view, 0, scores, rows, rescale);
    PackWeights(scores, weights);
    if (count > 1) AwaitTile(0, used_ + 1);
    for (int i = 1; i < count; ++i, ++used_) {
      if (paired) TakeTurn();
      MultiplyKeys(used_ + 1, scores);
      AwaitTile(1, used_);
      MultiplyValues(used_, weights, sums);
      if (paired) PassTurn();
      ptx::WgmmaWait<1>();
      ptx::WgmmaFenceOperands(scores);
      Release(0, used_ + 1);
      Softmax(view, i, scores, rows, rescale);
      // Sums are rescaled only when a maximum has risen, which is rare past the first tiles.
      const bool raised = __any_sync(kAllLanes, rescale[0] != 1 || rescale[1] != 1);
      ptx::WgmmaFenceOperands(scores);
      // This wait for the next K stands here because the compiler moves no WgmmaWait across its
      // loop. It would else put the wait below before the softmax, which is to run beside the
      // products.
      if (i + 1 < count) AwaitTile(0, used_ + 2);
      ptx::WgmmaWait<0>();
      ptx::WgmmaFenceOperands(sums);
      Release(1, used_);
      if (raised) {
#pragma unroll
        for (int j = 0; j < kSums; ++j) sums[j] *= rescale[j / 2 % 2];
      }
      PackWeights(scores, weights);
    }
    AwaitTile(1, used_);
    MultiplyValues(used_, weights, sums);
    ptx::WgmmaWait<0>();
    ptx::WgmmaFenceOperands(sums);
    Release(1, used_);
    ++used_;
    Store(view, rows, sums);
  }

  // TakeTurn and PassTurn make the two groups start their products one after the other.
  __device__ __forceinline__ void TakeTurn() {
    ptx::NamedBarrierSync(kTurnBarrier + group_, kComputeGroups * kGroupThreads);
  }
  __device__ __forceinline__ void PassTurn() {
    ptx::NamedBarrierArrive(kTurnBarrier + 1 - group_, kComputeGroups * kGroupThreads);
  }

  __device__ __forceinline__ void LoadQueryRows(const TileView& view) {
    constexpr int kRowChunks = D / 8;
    // Each warp waits for its own products alone: another warp of the group may still multiply the
    // rows of Q that are overwritten here, for the tile before.
    ptx::NamedBarrierSync(kQueryBarrier + group_, kGroupThreads);
#pragma unroll 4
    for (int i = thread_; i < kGroupRows * kRowChunks; i += kGroupThreads) {
      const int row = group_ * kGroupRows + i / kRowChunks;
      // Rows past the end of the tile repeat its last row; their results are not stored.
      const int packed = min(view.tile.row_begin + row, view.tile.row_end - 1);
      CopyQueries<Type>(p_, view.RowIndex(p_, packed, D, p_.q_stride) + i % kRowChunks * 8,
                        shared_ + PanelByte(row, i % kRowChunks));
    }
    ptx::CpAsyncCommit();
    ptx::CpAsyncWait<0>();
    ptx::FenceProxyAsync();
    ptx::NamedBarrierSync(kQueryBarrier + group_, kGroupThreads);
  }

  __device__ __forceinline__ static uint64_t Descriptor(const unsigned char* at) {
    return ptx::WgmmaDescriptor(at, kPanelBytes, kGroupOfRowsBytes, kSwizzle128);
  }
  __device__ __forceinline__ const unsigned char* Slot(int ring, int n) const {
    return shared_ + kTileBytes * (1 + ring * kSlots + n % kSlots);
  }

  // Starts the products scores = Q * K^T with tile n of K.
  __device__ __forceinline__ void MultiplyKeys(int n, float (&scores)[kScores]) {
    const uint64_t queries = Descriptor(shared_ + group_ * kGroupRows * kPanelRowBytes);
    const uint64_t keys = Descriptor(Slot(0, n));
    ptx::WgmmaFenceOperands(scores);
    ptx::WgmmaFence();
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      const uint64_t at = (k / 4 * kPanelBytes + k % 4 * 32) / kChunkBytes;
      ptx::WgmmaSS<Type, kKeys, 0>(scores, queries + at, keys + at, k > 0);
    }
    ptx::WgmmaCommit();
  }

  // Starts the products sums += weights * V with tile n of V.
  __device__ __forceinline__ void MultiplyValues(int n, const uint32_t (&weights)[kKeys / 16][4],
                                                 float (&sums)[kSums]) {
    const uint64_t values = Descriptor(Slot(1, n));
    ptx::WgmmaFenceOperands(sums);
    ptx::WgmmaFence();
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      const uint64_t at = k * 16 * kPanelRowBytes / kChunkBytes;
      ptx::WgmmaRS<Type, D, 1>(sums, weights[k], values + at, 1);
    }
    ptx::WgmmaCommit();
  }

  // The packed row of this thread: of the 16 rows of its warp it has rows lane / 4 (upper is 0) and
  // lane / 4 + 8 (upper is 1).
  __device__ __forceinline__ int PackedRow(const TileView& view, int upper) const {
    return view.tile.row_begin + group_ * kGroupRows + thread_ / kWarpLanes * 16 + upper * 8 +
           lane_ / 4;
  }

  // Turns the scores of key tile i into softmax weights, and sets what earlier sums are rescaled
  // by.
  __device__ __forceinline__ void Softmax(const TileView& view, int i, float (&s)[kScores],
                                          SoftmaxRow (&rows)[2], float (&rescale)[2]) {
    if (p_.rule.cap != 0) {
#pragma unroll
      for (int j = 0; j < kScores; ++j) s[j] = p_.rule.Logit2(s[j]);
    }
    if (!AllSee(view, i)) Mask(view, i, s);
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      float max = -kInfinity;
#pragma unroll
      for (int j = 2 * upper; j < kScores; j += 4) max = fmaxf(max, fmaxf(s[j], s[j + 1]));
      float base;
      rescale[upper] = rows[upper].Raise(QuadMax(max), p_.score_scale, base);
#pragma unroll
      for (int j = 2 * upper; j < kScores; j += 4) {
        s[j] = ptx::Exp2((s[j] - base) * p_.score_scale);
        s[j + 1] = ptx::Exp2((s[j + 1] - base) * p_.score_scale);
        rows[upper].sum += s[j] + s[j + 1];
      }
    }
  }

  __device__ __forceinline__ void Mask(const TileView& view, int i, float (&s)[kScores]) {
    const int n = used_ + (i > 0 ? 1 : 0);
    AwaitTile(1, n);  // whose copying threads have noted the spoiled keys
    const int tile_key = view.tile.key_begin + i * kKeys + lane_ % 4 * 2;
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const int packed = min(PackedRow(view, upper), view.tile.row_end - 1);
      const int last = view.LastSeen(p_, packed) - tile_key;
      const int before = p_.window > 0 ? last - p_.window : -kKeys;
#pragma unroll
      for (int j = 2 * upper; j < kScores; j += 4) {
        const int key = j / 4 * 8;
        if (key > last || key <= before) s[j] = -kInfinity;
        if (key + 1 > last || key + 1 <= before) s[j + 1] = -kInfinity;
      }
    }
    const SpoiledKeys<kKeys>& spoiled = control_.spoiled[n % kSlots];
    if (spoiled.last_tile != n) return;
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
      const int key = j / 4 * 8 + lane_ % 4 * 2 + j % 2;
      if (spoiled.tile_of[key] == n && s[j] != -kInfinity) s[j] = __int_as_float(0x7fffffff);
    }
  }

  static __device__ __forceinline__ void PackWeights(const float (&s)[kScores],
                                                     uint32_t (&weights)[kKeys / 16][4]) {
#pragma unroll
    for (int j = 0; j < kScores / 2; ++j)
      weights[j / 4][j % 4] = Pack<Type>(s[2 * j], s[2 * j + 1]);
  }

  __device__ __forceinline__ void Store(const TileView& view, const SoftmaxRow (&rows)[2],
                                        const float (&sums)[kSums]) {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const SoftmaxRow row = {rows[upper].max, QuadSum(rows[upper].sum)};
      const int packed = PackedRow(view, upper);
      if (packed >= view.tile.row_end) continue;
      StoreRow<kRows, D>(p_, view, packed, row, [&](int d) {
        return make_float2(sums[4 * d + 2 * upper], sums[4 * d + 2 * upper + 1]);
      });
    }
  }

  const PrefillParams& p_;
  Control& control_;
  unsigned char* const shared_;
  const int group_;
  const int thread_;  // index in the group
  const int lane_;
  int used_ = 0;  // tiles of K or V before the one in use, of all work items
};

template <class Type, int D>
__global__ void __launch_bounds__(kThreads, 1) HopperPrefillKernel(PrefillParams p, int num_tiles) {
  __shared__ Control control;
  static_assert(kSlots * kKeys <= kThreads, "a thread for each key of the slots");
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kSlots) {
    for (Ring& ring : control.rings) {
      ptx::MbarrierInit(&ring.full[thread], kCopyWarps * kWarpLanes);
      ptx::MbarrierInit(&ring.empty[thread], kComputeGroups * kGroupThreads / kWarpLanes);
    }
    control.spoiled[thread].last_tile = -1;
    ptx::FenceBarrierInit();
  }
  if (thread < kSlots * kKeys) control.spoiled[thread / kKeys].tile_of[thread % kKeys] = -1;
  __syncthreads();
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();
  if (__shfl_sync(kAllLanes, thread / kGroupThreads, 0) == 0) {
    ptx::SetMaxRegistersDec<kCopyRegisters>();
    Copier<Type, D>(p, control, thread).Run(num_tiles);
  } else {
    ptx::SetMaxRegistersInc<kComputeRegisters>();
    Computer<Type, D>(p, control, thread - kGroupThreads).Run(num_tiles);
  }
}

template <class Type, int D>
cudaError_t LaunchHopper(const LaunchTarget& on, const AttentionArgs& args,
                         const PrefillWork& work) {
  const int blocks = std::min(work.num_tiles, on.num_sms);
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(blocks)),
                             .block = dim3(kThreads),
                             .shared_bytes = HopperShared<D>::kBytes,
                             .after_previous = true};
  return Launch(HopperPrefillKernel<Type, D>, shape, on.stream, MakePrefillParams(args, work),
                work.num_tiles);
}

template <class Type>
cudaError_t LaunchHopperDim(const LaunchTarget& on, const AttentionArgs& args,
                            const PrefillWork& work) {
  if (args.pool.head_dim == 64) return LaunchHopper<Type, 64>(on, args, work);
  return LaunchHopper<Type, 128>(on, args, work);
}

}  // namespace

bool TakesHopperPrefill(const LaunchTarget& on, const AttentionArgs& args) {
  const KvPoolView& pool = args.pool;
  return on.compute_capability == 90 && FitsTensorCores(on, args) &&
         (pool.head_dim == 64 || pool.head_dim == 128) && pool.dtype != DType::kF8E4M3 &&
         HopperShared<128>::kBytes + sizeof(Control) <= on.max_shared_bytes;
}

PrefillTiling HopperTiling(const LaunchTarget& on) {
  return {.tile_rows = kRows, .tile_keys = kKeys, .concurrent_tiles = on.num_sms};
}

cudaError_t HopperPrefill(const LaunchTarget& on, const AttentionArgs& args,
                          const PrefillWork& work) {
  if (args.pool.dtype == DType::kBF16) return LaunchHopperDim<ptx::Bf16>(on, args, work);
  return LaunchHopperDim<ptx::F16>(on, args, work);
}

}  // namespace tandem::cuda
