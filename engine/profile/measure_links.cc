#include "engine/profile/measure_links.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "base/status.h"
#include "base/thread_name.h"
#include "transfer/fabric/link_prober.h"
#include "transfer/fabric/probe_receiver.h"
#include "transfer/framed/framed_transport.h"
#include "transfer/media/shm/shm_medium.h"
#include "transfer/media/tcp/tcp_medium.h"

namespace tandem {
namespace {

constexpr uint64_t kEpoch = 1;
constexpr int kMeasurements = 5;
constexpr int32_t kStreamCounts[] = {2, 4};

// A sending and a receiving worker in one process, with one link between them.
class ProbedLink {
 public:
  static absl::StatusOr<std::unique_ptr<ProbedLink>> Open(std::string_view name, Device& device,
                                                          size_t extent_bytes) {
    auto link = std::make_unique<ProbedLink>();
    const bool shared = !device.is_host();
    ASSIGN_OR_RETURN(DeviceBuffer landing,
                     AllocateProbeMemory(&device, ProbeReceiver::kMemoryBytes, shared));
    ASSIGN_OR_RETURN(DeviceBuffer probes,
                     AllocateProbeMemory(&device, LinkProber::kMemoryBytes, shared));
    link->receiver_ =
        std::make_unique<ProbeReceiver>(nullptr, kEpoch, std::move(landing), link->clock_);
    link->prober_ = std::make_unique<LinkProber>(extent_bytes, std::move(probes), link->clock_);
    ASSIGN_OR_RETURN(link->receiving_, OpenEnd(name, device, extent_bytes, link->receiver_.get()));
    ASSIGN_OR_RETURN(link->sending_, OpenEnd(name, device, extent_bytes, nullptr));
    return link;
  }

  absl::StatusOr<LinkProbe> Measure() {
    return prober_->Measure(*sending_, receiving_->address(), kEpoch);
  }

 private:
  static absl::StatusOr<std::unique_ptr<Transport>> OpenEnd(std::string_view name, Device& device,
                                                            size_t extent_bytes,
                                                            FrameReceiver* receiver) {
    const size_t payload = std::min<size_t>(extent_bytes, kMaxProbePayload);
    std::unique_ptr<Medium> medium;
    if (name == "shm") {
      ASSIGN_OR_RETURN(medium, OpenShmMedium({.device = &device,
                                              .area_bytes = ShmAreaBytes(device, payload),
                                              .max_payload_bytes = payload}));
    } else {
      ASSIGN_OR_RETURN(medium, OpenTcpMedium({}));
    }
    return NewFramedTransport({.device = &device, .staged_payload_bytes = payload},
                              std::move(medium), receiver);
  }

  SteadyClock clock_;
  std::unique_ptr<ProbeReceiver> receiver_;
  std::unique_ptr<LinkProber> prober_;
  std::unique_ptr<Transport> receiving_;
  std::unique_ptr<Transport> sending_;
};

// The median of several measurements of one link.
absl::StatusOr<LinkProbe> MeasureOften(ProbedLink& link) {
  std::vector<double> rates;
  std::vector<Duration> round_trips, operations;
  for (int i = 0; i < kMeasurements; ++i) {
    ASSIGN_OR_RETURN(const LinkProbe probe, link.Measure());
    rates.push_back(probe.gigabytes_per_second);
    round_trips.push_back(probe.round_trip);
    operations.push_back(probe.operation);
  }
  return LinkProbe{.gigabytes_per_second = MedianMs(rates),
                   .round_trip = Median(round_trips),
                   .operation = Median(operations)};
}

// The total rate of `streams` links that are used at the same time, in GB/s.
absl::StatusOr<double> MeasureTogether(std::string_view name, Device& device, size_t extent_bytes,
                                       int32_t streams) {
  std::vector<std::unique_ptr<ProbedLink>> links;
  for (int32_t i = 0; i < streams; ++i) {
    ASSIGN_OR_RETURN(links.emplace_back(), ProbedLink::Open(name, device, extent_bytes));
  }
  std::vector<absl::StatusOr<LinkProbe>> probes(links.size(), Internal("not measured"));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < links.size(); ++i) {
    threads.emplace_back([&links, &probes, i] {
      NameThisThread("probe");
      probes[i] = MeasureOften(*links[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  double total = 0;
  for (const absl::StatusOr<LinkProbe>& probe : probes) {
    RETURN_IF_ERROR(probe.status());
    total += probe->gigabytes_per_second;
  }
  return total;
}

absl::StatusOr<NamedLink> MeasureLink(std::string_view name, Device& device, size_t extent_bytes) {
  ASSIGN_OR_RETURN(const auto alone, ProbedLink::Open(name, device, extent_bytes));
  ASSIGN_OR_RETURN(const LinkProbe probe, MeasureOften(*alone));
  NamedLink link{.name = std::string(name), .model = {}};
  link.model.setup = probe.round_trip;
  link.model.operation = probe.operation;
  link.model.bytes_per_second = probe.gigabytes_per_second * 1e9;
  double share = 1;  // rate per stream, as a share of a lone one's; never rises with their number
  for (const int32_t streams : kStreamCounts) {
    ASSIGN_OR_RETURN(const double together, MeasureTogether(name, device, extent_bytes, streams));
    share = std::min(share, together / probe.gigabytes_per_second / streams);
    link.model.contention.push_back({.streams = streams, .total = share * streams});
  }
  RETURN_IF_ERROR(link.model.Validate());
  return link;
}

}  // namespace

absl::StatusOr<std::vector<NamedLink>> MeasureLinks(const KvLayout& layout, Device& device) {
  std::vector<NamedLink> links;
  for (const std::string_view name : {"shm", "tcp"}) {
    absl::StatusOr<NamedLink> link =
        MeasureLink(name, device, static_cast<size_t>(layout.ExtentBytes()));
    if (!link.ok()) return Annotate(link.status(), name);
    links.push_back(*std::move(link));
  }
  std::stable_sort(links.begin(), links.end(), [](const NamedLink& a, const NamedLink& b) {
    return a.model.bytes_per_second > b.model.bytes_per_second;
  });
  return links;
}

}  // namespace tandem
