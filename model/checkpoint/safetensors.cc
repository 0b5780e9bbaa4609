#include "model/checkpoint/safetensors.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/status.h"
#include "fmt/ranges.h"
#include "model/checkpoint/strict_json.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's own reader
constexpr size_t kMaxRank = 8;

uint64_t ReadLittleEndian64(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | std::to_integer<uint64_t>(bytes[i]);
  return value;
}

absl::StatusOr<std::string_view> HeaderText(std::span<const std::byte> head, uint64_t file_size) {
  if (file_size < kLengthBytes || head.size() < kLengthBytes) {
    return InvalidArgument("{} bytes long: a safetensors file begins with 8 bytes of header length",
                           file_size);
  }
  const uint64_t length = ReadLittleEndian64(head);
  if (length > kMaxHeaderBytes) {
    return InvalidArgument("header length {}: at most {} is allowed; not a safetensors file?",
                           length, kMaxHeaderBytes);
  }
  if (length > file_size - kLengthBytes || length > head.size() - kLengthBytes) {
    return InvalidArgument("header length {}, but the file has {} bytes: it is truncated", length,
                           file_size);
  }
  return std::string_view(reinterpret_cast<const char*>(head.data()) + kLengthBytes, length);
}

absl::StatusOr<DType> ParseDType(const FieldReader& fields) {
  ASSIGN_OR_RETURN(const std::string name, fields.String("dtype"));
  if (name == "BF16") return DType::kBF16;
  if (name == "F16") return DType::kF16;
  if (name == "F32") return DType::kF32;
  if (name == "I8") return DType::kI8;
  if (name == "F8_E4M3") return DType::kF8E4M3;
  return Unimplemented("dtype {}: this build reads BF16, F16, F32, F8_E4M3 and I8", Quoted(name));
}

// Returns the elements of `value` if it is an array of at most `max_size` integers in [0, 2^63).
std::optional<std::vector<int64_t>> NaturalNumbers(const Json* value, size_t max_size) {
  if (value == nullptr || !value->is_array() || value->size() > max_size) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const Json& element : *value) {
    const auto* number = element.get_ptr<const uint64_t*>();
    if (number == nullptr || *number > uint64_t{INT64_MAX}) return std::nullopt;
    numbers.push_back(static_cast<int64_t>(*number));
  }
  return numbers;
}

std::optional<uint64_t> ByteCount(DType dtype, std::span<const int64_t> shape) {
  uint64_t count = static_cast<uint64_t>(SizeOf(dtype));
  for (int64_t extent : shape) {
    if (__builtin_mul_overflow(count, static_cast<uint64_t>(extent), &count)) return std::nullopt;
  }
  return count;
}

// Parses one entry of the header; `data_begin` is where the data starts in the file.
absl::StatusOr<SafetensorsEntry> ParseEntry(const std::string& name, const Json& value,
                                            uint64_t data_begin, uint64_t file_size) {
  if (!value.is_object()) return InvalidArgument("{}, not an object", Shown(value));
  const FieldReader fields(value, "");
  SafetensorsEntry entry{.name = name};
  ASSIGN_OR_RETURN(entry.dtype, ParseDType(fields));

  std::optional<std::vector<int64_t>> shape = NaturalNumbers(fields.Find("shape"), kMaxRank);
  if (!shape.has_value()) {
    return InvalidArgument("shape must be an array of at most {} sizes", kMaxRank);
  }
  entry.shape = *std::move(shape);
  const auto offsets = NaturalNumbers(fields.Find("data_offsets"), 2);
  if (!offsets.has_value() || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return InvalidArgument("data_offsets must be [begin, end] with begin <= end");
  }
  const uint64_t begin = static_cast<uint64_t>((*offsets)[0]);
  const uint64_t end = static_cast<uint64_t>((*offsets)[1]);
  if (end > file_size - data_begin) {
    return InvalidArgument("its data ends at {}, but only {} bytes follow the header: truncated",
                           end, file_size - data_begin);
  }
  const std::optional<uint64_t> bytes = ByteCount(entry.dtype, entry.shape);
  if (bytes != end - begin) {
    return InvalidArgument("{} bytes of data, but its shape [{}] of {} does not have that many",
                           end - begin, fmt::join(entry.shape, ", "), Name(entry.dtype));
  }
  entry.begin = data_begin + begin;
  entry.end = data_begin + end;
  return entry;
}

// Checks that each byte of data belongs to exactly one tensor, as the format requires.
absl::Status CheckTiling(std::span<const SafetensorsEntry> entries, uint64_t data_begin,
                         uint64_t file_size) {
  uint64_t covered = data_begin;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != covered) {
      return InvalidArgument("tensor {} begins at byte {}, but {} at byte {}", Quoted(entry.name),
                             entry.begin, covered > entry.begin ? "another ends" : "data goes on",
                             covered);
    }
    covered = entry.end;
  }
  if (covered != file_size) {
    return InvalidArgument("the tensors end at byte {}, but the file has {}", covered, file_size);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(
    std::span<const std::byte> head, uint64_t file_size) {
  ASSIGN_OR_RETURN(const std::string_view text, HeaderText(head, file_size));
  auto header = ParseStrictJson(text);
  if (!header.ok()) return Annotate(header.status(), "safetensors header");
  if (!header->is_object()) {
    return InvalidArgument("safetensors header is {}, not an object", Shown(*header));
  }
  const uint64_t data_begin = kLengthBytes + text.size();
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, value] : header->items()) {
    if (name == "__metadata__") continue;
    auto entry = ParseEntry(name, value, data_begin, file_size);
    if (!entry.ok()) return Annotate(entry.status(), "tensor " + Quoted(name));
    entries.push_back(*std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  RETURN_IF_ERROR(CheckTiling(entries, data_begin, file_size));
  return entries;
}

}  // namespace tandem
