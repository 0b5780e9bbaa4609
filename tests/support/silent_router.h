#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "tandem/v1/cluster.grpc.pb.h"

namespace tandem {

// Keeps what it is told; answers no call while it is held.
class SilentRouter final : public v1::Cluster::Service {
 public:
  grpc::Status Register(grpc::ServerContext* context, const v1::RegisterRequest* request,
                        v1::RegisterResponse* response) override {
    response->set_heartbeat_ms(heartbeat_ms);
    {
      absl::MutexLock lock(&mutex_);
      ++num_registrations_;
    }
    return Take(*context, request->load());
  }
  grpc::Status Heartbeat(grpc::ServerContext* context, const v1::HeartbeatRequest* request,
                         v1::HeartbeatResponse* response) override {
    if (!peer.empty()) {
      v1::KvPeer& known = *response->add_kv_peers();
      known.set_name(peer);
      known.set_epoch(peer_epoch);
    }
    {
      absl::MutexLock lock(&mutex_);
      ++num_heartbeats_;
      has_heard_leaving_ = has_heard_leaving_ || request->leaving();
    }
    return Take(*context, request->load());
  }
  grpc::Status Deregister(grpc::ServerContext*, const v1::DeregisterRequest*,
                          v1::DeregisterResponse*) override {
    return grpc::Status::OK;
  }

  // Set before the first call.
  int64_t heartbeat_ms = 10;
  std::string peer;  // that KV may be sent to
  uint64_t peer_epoch = 1;

  void Hold(bool held) {
    absl::MutexLock lock(&mutex_);
    held_ = held;
  }
  // False after a minute.
  bool AwaitCallThatIsHeld() {
    absl::MutexLock lock(&mutex_);
    const auto one = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return num_held_ > 0; };
    return mutex_.AwaitWithTimeout(absl::Condition(&one), absl::Minutes(1));
  }
  bool AwaitWord(const std::string& not_ready) {
    absl::MutexLock lock(&mutex_);
    const auto came = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return word_ == not_ready; };
    return mutex_.AwaitWithTimeout(absl::Condition(&came), absl::Minutes(1));
  }
  // False after a minute.
  bool AwaitHeartbeats(int least) {
    absl::MutexLock lock(&mutex_);
    const auto came = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return num_heartbeats_ >= least;
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&came), absl::Minutes(1));
  }
  // False after a minute.
  bool AwaitRegistrations(int least) {
    absl::MutexLock lock(&mutex_);
    const auto came = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return num_registrations_ >= least;
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&came), absl::Minutes(1));
  }
  int num_heartbeats() {
    absl::MutexLock lock(&mutex_);
    return num_heartbeats_;
  }
  // Until a heartbeat says that the worker is leaving. False after a minute.
  bool AwaitLeaving() {
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&has_heard_leaving_), absl::Minutes(1));
  }
  // Calls that were held until their time was over.
  int num_timed_out() {
    absl::MutexLock lock(&mutex_);
    return num_timed_out_;
  }

 private:
  grpc::Status Take(grpc::ServerContext& context, const v1::WorkerLoad& load) {
    absl::MutexLock lock(&mutex_);
    word_ = load.not_ready();
    ++num_held_;
    const auto over = [this, &context]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !held_ || context.IsCancelled();
    };
    while (!mutex_.AwaitWithTimeout(absl::Condition(&over), absl::Milliseconds(1))) {
    }
    --num_held_;
    if (context.IsCancelled() && std::chrono::system_clock::now() >= context.deadline()) {
      ++num_timed_out_;
    }
    return grpc::Status::OK;
  }

  absl::Mutex mutex_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  int num_held_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_timed_out_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_registrations_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_heartbeats_ ABSL_GUARDED_BY(mutex_) = 0;
  bool has_heard_leaving_ ABSL_GUARDED_BY(mutex_) = false;
  std::string word_ ABSL_GUARDED_BY(mutex_) = "nothing yet";
};

// Null when `host`:`port` is taken. The port becomes the one that was chosen in place of 0.
inline std::unique_ptr<grpc::Server> Serve(SilentRouter& router, const std::string& host,
                                           int& port) {
  grpc::ServerBuilder builder;
  const std::string address = host + ":" + std::to_string(port);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&router);
  return builder.BuildAndStart();
}

inline std::unique_ptr<grpc::Server> Serve(SilentRouter& router, std::string& address) {
  int port = 0;
  auto server = Serve(router, "127.0.0.1", port);
  address = "127.0.0.1:" + std::to_string(port);
  return server;
}

}  // namespace tandem
