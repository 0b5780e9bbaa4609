#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/check.h"

namespace tandem {

// The numeric values are part of the KV layout's fingerprint, so new types are added at the end.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI32,
  kI64,
  kF8E4M3,
  // Types of KV only: K and V as integers of the numbers of bits in the name, with scales
  // (base/kv_row.h).
  kK8V8,
  kK6V5,
  kK4V3,
  kI8,  // quantised weights of a checkpoint
};

constexpr bool IsQuantisedKv(DType dtype) {
  return dtype == DType::kK8V8 || dtype == DType::kK6V5 || dtype == DType::kK4V3;
}

// Bytes of one element. Quantised KV has none: KvRowBytes says what a row of it takes.
constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kF8E4M3:
    case DType::kI8:
      return 1;
    case DType::kK8V8:
    case DType::kK6V5:
    case DType::kK4V3:
      break;
  }
  TANDEM_CHECK(false, "elements of quantised KV have no size of their own");
}

// The name of a type: "f32", "f16", "bf16", "i32", "i64", "f8e4m3", "k8v8", "k6v5", "k4v3", "i8".
constexpr std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kF8E4M3:
      return "f8e4m3";
    case DType::kK8V8:
      return "k8v8";
    case DType::kK6V5:
      return "k6v5";
    case DType::kK4V3:
      return "k4v3";
    case DType::kI8:
      return "i8";
  }
  return "?";
}

// Whether `to` can represent every value of `from`: the same type, or a wider one.
constexpr bool Widens(DType from, DType to) {
  if (from == to) return true;
  switch (from) {
    case DType::kF8E4M3:
      return to == DType::kF16 || to == DType::kBF16 || to == DType::kF32;
    case DType::kF16:
    case DType::kBF16:
      return to == DType::kF32;
    default:
      return false;
  }
}

// Whether KV of type `from` can be rounded to the quantised type `to`. This changes its values in
// the same way as storing newly computed KV in a pool of that type does.
constexpr bool Quantises(DType from, DType to) {
  return IsQuantisedKv(to) && (from == DType::kF32 || from == DType::kF16 || from == DType::kBF16);
}

constexpr std::optional<DType> DTypeFromName(std::string_view name) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI32, DType::kI64,
                      DType::kF8E4M3, DType::kK8V8, DType::kK6V5, DType::kK4V3, DType::kI8}) {
    if (Name(dtype) == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace tandem
