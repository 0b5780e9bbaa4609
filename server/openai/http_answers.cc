#include "server/openai/http_answers.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <random>

#include "base/rng.h"
#include "base/utf8.h"
#include "fmt/format.h"
#include "router/cluster/registration_check.h"
#include "server/openai/api_error.h"
#include "server/openai/finish_json.h"

namespace tandem::openai {
namespace {

uint64_t RandomSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

std::string NewRequestId() {
  static const uint64_t seed = RandomSeed();
  static std::atomic<uint64_t> next = 0;
  const auto bits = Philox4x32(seed, next.fetch_add(1), 0);
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", bits[0], bits[1], bits[2], bits[3]);
}

}  // namespace

HttpResponse JsonResponse(const Json& json) { return {.status = 200, .body = JsonText(json)}; }

HttpResponse ErrorResponse(const absl::Status& status, const std::string& request_id) {
  ApiError error = ToApiError(status);
  error.message = ReplaceInvalidUtf8(error.message);
  return ErrorResponse(error, ErrorJson(error), request_id);
}

HttpResponse ErrorResponse(const ApiError& error, const Json& body, const std::string& request_id) {
  HttpResponse response{.status = error.http_status, .body = JsonText(body)};
  AddAnswerHeaders(request_id, response.headers);
  if (error.retry_after) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(*error.retry_after);
    response.headers.push_back({"retry-after", std::to_string(seconds.count())});
    response.headers.push_back({"retry-after-ms", std::to_string(error.retry_after->count())});
  }
  response.headers.push_back({"x-should-retry", error.retriable ? "true" : "false"});
  return response;
}

void AddAnswerHeaders(const std::string& request_id, std::vector<HttpHeader>& headers,
                      std::string_view other_name) {
  if (request_id.empty()) return;
  headers.push_back({"x-request-id", request_id});
  if (!other_name.empty()) headers.push_back({std::string(other_name), request_id});
}

void AddRouteHeaders(const v1::ChoiceFinish& finish, std::vector<HttpHeader>& headers) {
  headers.push_back({"x-tandem-route", RouteName(finish.route())});
  if (!finish.prefill_worker().empty()) {
    headers.push_back({"x-tandem-prefill-worker", finish.prefill_worker()});
  }
  if (!finish.decode_worker().empty()) {
    headers.push_back({"x-tandem-decode-worker", finish.decode_worker()});
  }
}

std::string RequestIdOf(const HttpRequest& request) {
  const std::optional<std::string_view> given = request.Header("x-request-id");
  if (given && !given->empty() && CheckName("x-request-id", *given).ok()) {
    return std::string(*given);
  }
  return NewRequestId();
}

void TakeRequestId(const Json& body, std::string& request_id) {
  const auto found = body.find("request_id");
  if (found == body.end() || !found->is_string()) return;
  const auto& given = found->get_ref<const std::string&>();
  if (!given.empty() && CheckName("request_id", given).ok()) request_id = given;
}

}  // namespace tandem::openai
