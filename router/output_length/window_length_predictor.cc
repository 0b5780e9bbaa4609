#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <memory>

#include "router/output_length/output_length_predictor.h"

namespace tandem {
namespace {

constexpr std::array<int32_t, 6> kBounds = {64, 128, 256, 512, 1024, 2048};
constexpr size_t kBucketWindow = 50;
constexpr size_t kAllWindow = 300;
constexpr size_t kLeastOfBucket = 5;
constexpr double kColdStart = 256;

// The latest `size` lengths, and their sum.
class Window {
 public:
  explicit Window(size_t size) : size_(size) {}

  void Add(int32_t length) {
    lengths_.push_back(length);
    sum_ += length;
    if (lengths_.size() <= size_) return;
    sum_ -= lengths_.front();
    lengths_.pop_front();
  }
  size_t count() const { return lengths_.size(); }
  // Halves are rounded to the even neighbour, as Python does.
  double RoundedMean() const {
    return std::nearbyint(static_cast<double>(sum_) / static_cast<double>(count()));
  }

 private:
  const size_t size_;
  std::deque<int32_t> lengths_;
  int64_t sum_ = 0;
};

class WindowPredictor final : public OutputLengthPredictor {
 public:
  LengthForecast Predict(const LengthQuery& query) const override {
    const Window& bucket = buckets_[BucketOf(query.prompt_tokens)];
    const Window* const window = bucket.count() >= kLeastOfBucket ? &bucket
                                 : all_.count() > 0               ? &all_
                                                                  : nullptr;
    const double mean = window == nullptr ? kColdStart : std::max(1.0, window->RoundedMean());
    const double least = std::min(query.max_tokens, query.emitted + 1);
    const double length = std::clamp(mean, least, static_cast<double>(query.max_tokens));
    return {.mean = length,
            .p50 = length,
            .p90 = length,
            .observations = window == nullptr ? 0 : static_cast<int64_t>(window->count())};
  }

  void Observe(const LengthQuery& request, int32_t output_tokens, FinishKind) override {
    buckets_[BucketOf(request.prompt_tokens)].Add(output_tokens);
    all_.Add(output_tokens);
  }

 private:
  // Prompts longer than the last bound share the bucket of the last.
  static size_t BucketOf(int32_t prompt_tokens) {
    const auto bound = std::lower_bound(kBounds.begin(), kBounds.end() - 1, prompt_tokens);
    return static_cast<size_t>(bound - kBounds.begin());
  }

  std::array<Window, kBounds.size()> buckets_ = {Window(kBucketWindow), Window(kBucketWindow),
                                                 Window(kBucketWindow), Window(kBucketWindow),
                                                 Window(kBucketWindow), Window(kBucketWindow)};
  Window all_{kAllWindow};
};

}  // namespace

std::unique_ptr<OutputLengthPredictor> NewWindowLengthPredictor() {
  return std::make_unique<WindowPredictor>();
}

}  // namespace tandem
