#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "base/rng.h"
#include "tests/support/ops_fixture.h"
#include "tests/support/reference_ops.h"

namespace tandem {

// Samples rows of logits on a backend, and compares what is drawn with the float64 reference.
class SampleTest : public OpsTest {
 protected:
  std::vector<SampledToken> Sample(const std::vector<float>& logits, std::vector<SampleRow> rows) {
    std::vector<SampledToken> out(rows.size());
    const absl::Status status = Run(logits, rows, out);
    EXPECT_TRUE(status.ok()) << status;
    return out;
  }

  absl::Status Run(const std::vector<float>& logits, const std::vector<SampleRow>& rows,
                   std::span<SampledToken> out) {
    const auto num_rows = static_cast<int64_t>(rows.size());
    const DeviceArray device = ToDevice(logits);
    const int64_t vocab = static_cast<int64_t>(logits.size()) / num_rows;
    return ops().Sample(stream(), {Tensor(device, {num_rows, vocab}), rows, out});
  }

  // The ids drawn at the positions [0, count).
  std::vector<int32_t> Draw(const std::vector<float>& logits, SampleRow row, int64_t count) {
    std::vector<float> all;
    std::vector<SampleRow> rows;
    for (row.position = 0; row.position < count; ++row.position) {
      all.insert(all.end(), logits.begin(), logits.end());
      rows.push_back(row);
    }
    std::vector<int32_t> ids;
    for (const SampledToken& token : Sample(all, rows)) ids.push_back(token.token_id);
    return ids;
  }

  // Each draw equals the inverse of the reference's distribution, unless the uniform number lies
  // within rounding of a boundary.
  void ExpectDrawsFollowReference(const std::vector<float>& logits, const SampleRow& row,
                                  int64_t count) {
    const std::vector<double> distribution = reference::SampleDistribution(logits, row);
    const std::vector<int32_t> ids = Draw(logits, row, count);
    for (int64_t position = 0; position < count; ++position) {
      const double uniform = UniformAt(row.seed, static_cast<uint64_t>(position));
      const auto id = static_cast<size_t>(ids[static_cast<size_t>(position)]);
      const double low = std::accumulate(distribution.begin(),
                                         distribution.begin() + static_cast<int64_t>(id), 0.0);
      ASSERT_GT(distribution[id], 0) << "token " << id << " was filtered out";
      ASSERT_GT(uniform, low - 1e-5) << "position " << position;
      ASSERT_LT(uniform, low + distribution[id] + 1e-5) << "position " << position;
    }
  }
};

}  // namespace tandem
