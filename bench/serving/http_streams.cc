#include "bench/serving/http_streams.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"
#include "base/thread_name.h"

namespace tandem::loadgen {
namespace {

void SetUpCurl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

// What went wrong, by libcurl's code and its own words, and what to do where that is known.
absl::Status ToStatus(CURLcode code, const std::string& detail, const HttpRequest& request) {
  const std::string& url = request.url;
  switch (code) {
    case CURLE_OK:
      return absl::OkStatus();
    case CURLE_OPERATION_TIMEDOUT:
      return DeadlineExceeded("{}: {}", url, detail);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return FailedPrecondition(
          "{}: the server's certificate is refused, by the authorities of {}: {}", url,
          request.tls.ca.empty() ? "this system" : request.tls.ca, detail);
    case CURLE_SSL_CONNECT_ERROR:
      return Unavailable(
          "{}: {}; if the server speaks plain HTTP, its address begins with http:", url, detail);
    // A server of HTTPS closes the connection, or answers with what is no HTTP.
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_UNSUPPORTED_PROTOCOL:
      if (url.starts_with("https:")) break;
      return Unavailable("{}: {}; if the server speaks HTTPS, its address begins with https:", url,
                         detail);
    default:
      break;
  }
  return Unavailable("{}: {}", url, detail);
}

int IsUnwanted(void* request, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const HttpRequest*>(request)->unwanted() ? 1 : 0;
}

// A handle of libcurl with the request that it points to.
class EasyHandle {
 public:
  explicit EasyHandle(HttpRequest request) : request_(std::move(request)) {
    SetUpCurl();
    easy_ = curl_easy_init();
    for (const std::string& header : request_.headers) {
      headers_ = curl_slist_append(headers_, header.c_str());
    }
    curl_easy_setopt(easy_, CURLOPT_ERRORBUFFER, detail_.data());
    curl_easy_setopt(easy_, CURLOPT_URL, request_.url.c_str());
    curl_easy_setopt(easy_, CURLOPT_HTTPHEADER, headers_);
    curl_easy_setopt(easy_, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy_, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    // A proxy of the environment would be measured along with the server.
    curl_easy_setopt(easy_, CURLOPT_PROXY, "");
    const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(request_.timeout);
    curl_easy_setopt(easy_, CURLOPT_TIMEOUT_MS, static_cast<long>(timeout.count()));
    SetTlsFiles();
    if (!request_.body.empty()) {
      curl_easy_setopt(easy_, CURLOPT_POSTFIELDS, request_.body.data());
      curl_easy_setopt(easy_, CURLOPT_POSTFIELDSIZE_LARGE,
                       static_cast<curl_off_t>(request_.body.size()));
    }
  }
  ~EasyHandle() {
    curl_easy_cleanup(easy_);
    curl_slist_free_all(headers_);
  }
  EasyHandle(const EasyHandle&) = delete;
  EasyHandle& operator=(const EasyHandle&) = delete;

  CURL* get() const { return easy_; }
  // How a transfer ended that had this result.
  absl::Status StatusOf(CURLcode code) const {
    const char* const detail = detail_.data();
    return ToStatus(code, *detail == 0 ? curl_easy_strerror(code) : detail, request_);
  }
  long code() const {
    long code = 0;
    curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &code);
    return code;
  }
  // Seconds or a date in the answer; nothing where it has none.
  std::optional<Duration> retry_after() const {
    curl_off_t seconds = 0;
    curl_easy_getinfo(easy_, CURLINFO_RETRY_AFTER, &seconds);
    if (seconds <= 0) return std::nullopt;
    constexpr curl_off_t kDay = 24 * 3600;
    return std::chrono::seconds(std::min(seconds, kDay));
  }
  void AskWhetherUnwanted() {
    curl_easy_setopt(easy_, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(easy_, CURLOPT_XFERINFOFUNCTION, &IsUnwanted);
    curl_easy_setopt(easy_, CURLOPT_XFERINFODATA, &request_);
  }
  using OnBytes = size_t (*)(char*, size_t, size_t, void*);
  void SendBodyTo(OnBytes on_bytes, void* receiver) {
    curl_easy_setopt(easy_, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(easy_, CURLOPT_WRITEDATA, receiver);
  }

 private:
  void SetTlsFiles() {
    const std::pair<CURLoption, const std::string&> files[] = {{CURLOPT_CAINFO, request_.tls.ca},
                                                               {CURLOPT_SSLCERT, request_.tls.cert},
                                                               {CURLOPT_SSLKEY, request_.tls.key}};
    for (const auto& [option, file] : files) {
      if (!file.empty()) curl_easy_setopt(easy_, option, file.c_str());
    }
  }

  const HttpRequest request_;
  std::array<char, CURL_ERROR_SIZE> detail_{};  // libcurl writes to it when it fails
  CURL* easy_ = nullptr;
  curl_slist* headers_ = nullptr;
};

struct BoundedBody {
  std::string& text;
  const size_t max_bytes;
};

// Any other number than that of the bytes ends the transfer.
size_t AppendTo(char* bytes, size_t size, size_t count, void* receiver) {
  const BoundedBody& body = *static_cast<BoundedBody*>(receiver);
  if (size * count > body.max_bytes - body.text.size()) return 0;
  body.text.append(bytes, size * count);
  return size * count;
}

}  // namespace

absl::StatusOr<HttpAnswer> Fetch(const HttpRequest& request) {
  EasyHandle handle(request);
  HttpAnswer answer;
  BoundedBody body{.text = answer.body, .max_bytes = request.max_answer_bytes};
  handle.SendBodyTo(AppendTo, &body);
  if (request.unwanted) handle.AskWhetherUnwanted();
  RETURN_IF_ERROR(handle.StatusOf(curl_easy_perform(handle.get())));
  answer.code = handle.code();
  answer.retry_after = handle.retry_after();
  return answer;
}

class HttpExchange {
 public:
  HttpExchange(HttpRequest request, std::unique_ptr<HttpSink> sink)
      : handle_(std::move(request)), sink_(std::move(sink)) {
    handle_.SendBodyTo(&HttpExchange::OnBytes, this);
  }

  CURL* easy() const { return handle_.get(); }
  void End(CURLcode code) { sink_->OnEnd(handle_.code(), handle_.StatusOf(code)); }
  void EndCancelled() { sink_->OnEnd(handle_.code(), Cancelled("by this client")); }

 private:
  static size_t OnBytes(char* bytes, size_t size, size_t count, void* self) {
    auto& exchange = *static_cast<HttpExchange*>(self);
    exchange.sink_->OnBody(exchange.handle_.code(), {bytes, size * count});
    return size * count;
  }

  EasyHandle handle_;
  const std::unique_ptr<HttpSink> sink_;
};

// The thread that all exchanges run on.
class HttpStreams::Loop {
 public:
  using Exchange = std::shared_ptr<HttpExchange>;

  Loop() {
    SetUpCurl();
    multi_ = curl_multi_init();
    thread_ = std::thread([this] { Run(); });
  }
  ~Loop() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    curl_multi_wakeup(multi_);
    thread_.join();
    curl_multi_cleanup(multi_);
  }

  void Start(Exchange exchange) {
    {
      absl::MutexLock lock(&mutex_);
      to_start_.push_back(std::move(exchange));
    }
    curl_multi_wakeup(multi_);
  }
  void Cancel(Exchange exchange) {
    {
      absl::MutexLock lock(&mutex_);
      to_cancel_.push_back(std::move(exchange));
    }
    curl_multi_wakeup(multi_);
  }

 private:
  void Run() {
    NameThisThread("http-streams");
    constexpr int kPollMs = 1000;
    while (TakeCommands()) {
      int running = 0;
      curl_multi_perform(multi_, &running);
      EndFinished();
      curl_multi_poll(multi_, nullptr, 0, kPollMs, nullptr);
    }
  }

  // Returns false when the thread must stop.
  bool TakeCommands() {
    std::vector<Exchange> start;
    std::vector<Exchange> cancel;
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) return false;
      start.swap(to_start_);
      cancel.swap(to_cancel_);
    }
    for (Exchange& exchange : start) {
      CURL* const easy = exchange->easy();
      running_[easy] = std::move(exchange);
      curl_multi_add_handle(multi_, easy);
    }
    for (const Exchange& exchange : cancel) {
      if (running_.count(exchange->easy()) == 0) continue;
      TakeOut(exchange->easy())->EndCancelled();
    }
    return true;
  }

  void EndFinished() {
    int left = 0;
    while (CURLMsg* const message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      TakeOut(message->easy_handle)->End(code);
    }
  }

  Exchange TakeOut(CURL* easy) {
    curl_multi_remove_handle(multi_, easy);
    return std::move(running_.extract(easy).mapped());
  }

  CURLM* multi_ = nullptr;
  std::map<CURL*, Exchange> running_;  // used by the thread alone
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Exchange> to_start_ ABSL_GUARDED_BY(mutex_);
  std::vector<Exchange> to_cancel_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

HttpStreams::HttpStreams() : loop_(std::make_unique<Loop>()) {}
HttpStreams::~HttpStreams() = default;

std::shared_ptr<HttpExchange> HttpStreams::Prepare(const HttpRequest& request,
                                                   std::unique_ptr<HttpSink> sink) {
  return std::make_shared<HttpExchange>(request, std::move(sink));
}

void HttpStreams::Start(std::shared_ptr<HttpExchange> exchange) {
  loop_->Start(std::move(exchange));
}

void HttpStreams::Cancel(std::shared_ptr<HttpExchange> exchange) {
  loop_->Cancel(std::move(exchange));
}

}  // namespace tandem::loadgen
