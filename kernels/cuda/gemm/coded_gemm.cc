#include "kernels/cuda/gemm/coded_gemm.h"

#include <algorithm>

#include "base/status.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/memory/copy_rows.h"

namespace tandem::cuda {
namespace {

// The scratch for widened pieces of a weight: large enough that their products fill a GPU.
constexpr int64_t kScratchBytes = int64_t{32} << 20;
constexpr int64_t kAlignment = 256;  // of each array in the scratch, enough for every kernel
constexpr int64_t kPieceRows = 128;  // pieces are multiples of this where they can be
constexpr int32_t kNoRow = -1;
// The most inputs of a row: one of so many, as f32 and with its scales, fits the scratch.
constexpr int64_t kMostInputs = int64_t{1} << 22;

int64_t AlignedUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

TensorView RowsOf(const TensorView& all, int64_t first, int64_t count) {
  TensorView rows = all;
  rows.data = static_cast<std::byte*>(all.data) + first * all.row_stride * SizeOf(all.dtype);
  rows.shape[0] = count;
  return rows;
}

// The scratch while a weight is packed: the number of a row that has no codes, then some rows of
// the source, then their scales.
class PackingScratch {
 public:
  PackingScratch(std::byte* data, const TensorView& source, const TensorView& scales)
      : data_(data) {
    const int64_t row_bytes = source.shape[1] * SizeOf(source.dtype);
    const int64_t scale_bytes = scales.present() ? scales.shape[1] * SizeOf(scales.dtype) : 0;
    rows_at_once_ = (kScratchBytes - 2 * kAlignment) / (row_bytes + scale_bytes);
    scales_at_ = kAlignment + AlignedUp(rows_at_once_ * row_bytes);
  }

  int64_t rows_at_once() const { return rows_at_once_; }
  // Queues the copy of rows of the source, no more than fit, and of their scales if there are any.
  absl::StatusOr<CodedRows> Upload(CudaStream& stream, const TensorView& rows,
                                   const TensorView& scales) {
    std::byte* const source = data_ + kAlignment;
    RETURN_IF_ERROR(CopyRows(stream, rows, source));
    CodedRows there = {.source = TensorView(source, rows.dtype, {rows.rows(), rows.shape[1]}),
                       .bad_row = reinterpret_cast<int32_t*>(data_)};
    if (!scales.present()) return there;
    RETURN_IF_ERROR(CopyRows(stream, scales, data_ + scales_at_));
    there.scales = reinterpret_cast<const float*>(data_ + scales_at_);
    return there;
  }

 private:
  std::byte* const data_;
  int64_t rows_at_once_;
  int64_t scales_at_;
};

// Packs the rows of `source` as the rows of the weight from first_row on.
absl::Status PackRows(CudaStream& stream, const LaunchTarget& on, const PackedMatrix& weight,
                      int64_t first_row, const TensorView& source, const TensorView& scales,
                      std::byte* memory) {
  PackingScratch scratch(memory, source, scales);
  for (int64_t row = 0; row < source.rows(); row += scratch.rows_at_once()) {
    const int64_t count = std::min(scratch.rows_at_once(), source.rows() - row);
    const TensorView of_rows = scales.present() ? RowsOf(scales, row, count) : TensorView();
    ASSIGN_OR_RETURN(CodedRows rows, scratch.Upload(stream, RowsOf(source, row, count), of_rows));
    rows.first_row = first_row + row;
    RETURN_IF_CUDA_ERROR(PackCodedRows(on, weight, rows), "codes");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CodedGemm::Reserve() { return scratch_.Reserve(kScratchBytes); }

absl::Status CodedGemm::Pack(CudaStream& stream, const LaunchTarget& on, const PackedMatrix& dst,
                             std::span<const TensorView> sources, const TensorView& scales) {
  if (dst.k > kMostInputs) {
    return InvalidArgument("a weight of {} inputs, of which codes can have {}", dst.k, kMostInputs);
  }
  ASSIGN_OR_RETURN(std::byte* const scratch, scratch_.Get(stream, kScratchBytes));
  static constexpr int32_t kNone = kNoRow;
  const std::span<std::byte> bad_row_on_device(scratch, sizeof(int32_t));
  RETURN_IF_ERROR(stream.Copy(bad_row_on_device, std::as_bytes(std::span(&kNone, 1))));
  int64_t first_row = 0;
  for (const TensorView& source : sources) {
    const TensorView of_source =
        scales.present() ? RowsOf(scales, first_row, source.rows()) : TensorView();
    RETURN_IF_ERROR(PackRows(stream, on, dst, first_row, source, of_source, scratch));
    first_row += source.rows();
  }
  int32_t bad_row = kNoRow;
  RETURN_IF_ERROR(stream.Copy(std::as_writable_bytes(std::span(&bad_row, 1)), bad_row_on_device));
  RETURN_IF_ERROR(stream.Synchronize());
  if (bad_row == kNoRow) return absl::OkStatus();
  return InvalidArgument(
      "row {} of the weight has a value that is infinite or no number: {} cannot keep it", bad_row,
      Name(dst.format));
}

std::vector<CodedGemm::Piece> CodedGemm::PiecesOf(const GemmArgs& args) {
  const int64_t fitting = kScratchBytes / (args.weight.k * SizeOf(args.x.dtype));
  const int64_t rows =
      fitting > kPieceRows ? fitting / kPieceRows * kPieceRows : std::max<int64_t>(fitting, 1);
  std::vector<Piece> pieces;
  for (int64_t first = 0; first < args.weight.n; first += rows) {
    pieces.push_back({first, std::min(rows, args.weight.n - first)});
  }
  return pieces;
}

GemmArgs CodedGemm::Widened(const GemmArgs& args, const Piece& piece, std::byte* floats) {
  const auto columns_of = [&piece](TensorView tensor) {
    tensor.data = static_cast<std::byte*>(tensor.data) + piece.first * SizeOf(tensor.dtype);
    tensor.shape[tensor.rank - 1] = piece.count;
    return tensor;
  };
  GemmArgs part = args;
  part.weight = {.data = floats, .format = args.x.dtype, .n = piece.count, .k = args.weight.k};
  part.out = columns_of(args.out);
  if (args.bias.present()) part.bias = columns_of(args.bias);
  return part;
}

absl::Status CodedGemm::Multiply(CudaStream& stream, const LaunchTarget& on, const GemmArgs& args,
                                 Product multiply) {
  ASSIGN_OR_RETURN(std::byte* const floats, scratch_.Get(stream, kScratchBytes));
  for (const Piece& piece : PiecesOf(args)) {
    const TensorView widened(floats, args.x.dtype, {piece.count, args.weight.k});
    RETURN_IF_CUDA_ERROR(WidenCodedRows(on, args.weight, piece.first, widened), "gemm");
    RETURN_IF_ERROR(multiply(Widened(args, piece, floats)));
  }
  return absl::OkStatus();
}

absl::Status CodedGemm::Prepare(const GemmArgs& args, Product prepare) {
  RETURN_IF_ERROR(Reserve());
  for (const Piece& piece : PiecesOf(args)) {
    RETURN_IF_ERROR(prepare(Widened(args, piece, scratch_.data())));
  }
  return absl::OkStatus();
}

}  // namespace tandem::cuda
