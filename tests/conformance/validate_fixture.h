#pragma once

#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/ops_fixture.h"

namespace tandem::ops_validate {

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Tensors, a pool and tables that ops take, from which a test changes one thing at a time to show that
// an op refuses it by name and computes nothing.
class ValidateTest : public OpsTest {
 protected:
  // `refused` must give INVALID_ARGUMENT with every one of `words` in its message.
  static void ExpectRefused(const absl::Status& refused, std::initializer_list<const char*> words) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    for (const char* word : words) {
      EXPECT_NE(refused.ToString().find(word), std::string::npos) << word << " in: " << refused;
    }
  }

  void SetUp() override {
    OpsTest::SetUp();
    const std::vector<float> zeros(4096);
    for (size_t i = 0; i < 4; ++i) arrays_.push_back(ToDevice(zeros));
  }

  TensorView F32(std::initializer_list<int64_t> shape) { return Tensor(arrays_[0], shape); }
  // Apart from what F32 gives.
  TensorView Out(std::initializer_list<int64_t> shape) { return Tensor(arrays_[1], shape); }
  TensorView Table(std::initializer_list<int64_t> shape) { return Tensor(arrays_[2], shape); }
  std::byte* pool_data() { return static_cast<std::byte*>(arrays_[2].data()); }
  KvPoolView Pool() { return {pool_data(), DType::kBF16, 2, 4, 2, 8, 16}; }

  static KvPoolView With(KvPoolView pool, DType dtype, float k_scale, float v_scale) {
    pool.dtype = dtype;
    pool.k_scale = k_scale;
    pool.v_scale = v_scale;
    return pool;
  }

  std::vector<DeviceArray> arrays_;
};

}  // namespace tandem::ops_validate
