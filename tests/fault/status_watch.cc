#include "tests/fault/status_watch.h"

namespace tandem {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(25);
constexpr std::chrono::seconds kAnswerWithin(5);

}  // namespace

StatusWatch::StatusWatch(const std::string& router)
    : client_(router), latest_(std::make_shared<const v1::GetStatusResponse>()) {
  thread_ = std::thread([this] { Run(); });
}

StatusWatch::~StatusWatch() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

void StatusWatch::Run() {
  while (true) {
    const TimePoint asked = std::chrono::steady_clock::now();
    auto status = client_.GetStatus(kAnswerWithin);
    absl::MutexLock lock(&mutex_);
    if (status.ok()) {
      latest_ = std::make_shared<const v1::GetStatusResponse>(*std::move(status));
      asked_ = asked;
      told_ = std::chrono::steady_clock::now();
    }
    if (mutex_.AwaitWithTimeout(absl::Condition(&stop_), kInterval)) return;
  }
}

TimePoint StatusWatch::Await(const Condition& condition, Duration patience) const {
  const TimePoint since = std::chrono::steady_clock::now();
  const auto met = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return asked_ >= since && condition(*latest_);
  };
  absl::MutexLock lock(&mutex_);
  const bool came = mutex_.AwaitWithTimeout(absl::Condition(&met), absl::FromChrono(patience));
  return came ? told_ : kNoDeadline;
}

std::shared_ptr<const v1::GetStatusResponse> StatusWatch::latest() const {
  absl::MutexLock lock(&mutex_);
  return latest_;
}

}  // namespace tandem
