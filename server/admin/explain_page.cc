#include "server/admin/explain_page.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/utf8.h"
#include "server/admin/explain_report.h"
#include "server/admin/status_json.h"
#include "server/openai/http_answers.h"

namespace tandem {
namespace {

constexpr std::string_view kExplainPath = "/explain/";

int ColumnsOf(std::string_view query) {
  constexpr std::string_view kName = "columns=";
  constexpr int kFewest = 40;
  constexpr int kUsual = 100;
  constexpr int kMost = 400;
  int columns = 0;
  if (!query.starts_with(kName)) return kUsual;
  query.remove_prefix(kName.size());
  if (!absl::SimpleAtoi(std::string(query.substr(0, query.find('&'))), &columns)) return kUsual;
  return std::clamp(columns, kFewest, kMost);
}

bool WantsText(const HttpRequest& request) {
  return request.Header("accept").value_or("").find("text/plain") != std::string_view::npos;
}

HttpResponse AnswerOf(const HttpRequest& request,
                      const absl::StatusOr<v1::ExplainResponse>& response) {
  if (absl::IsNotFound(response.status())) {
    const std::string why = ReplaceInvalidUtf8(
        {response.status().message().data(), response.status().message().size()});
    return HttpError(404, why, "request_not_found");
  }
  if (!response.ok()) return openai::ErrorResponse(response.status(), "");
  if (!WantsText(request) || response->requests().empty()) {
    return {.status = 200, .body = ExplanationJson(*response) + "\n"};
  }
  return {.status = 200,
          .body = ExplanationText(response->requests(0), ColumnsOf(request.query)),
          .content_type = "text/plain; charset=utf-8"};
}

}  // namespace

HttpRoute ExplainRoute(ExplainCall explain) {
  return {.method = "GET",
          .path = std::string(kExplainPath),
          .handler =
              [explain = std::move(explain)](const std::shared_ptr<HttpExchange>& exchange) {
                const std::string_view path = exchange->request().path;
                std::optional<std::string> id = DecodePercent(path.substr(kExplainPath.size()));
                v1::ExplainRequest request;
                // An id that is not UTF-8 cannot be sent in protobuf, and no request has such an
                // id.
                request.set_request_id(ReplaceInvalidUtf8(id.value_or("")));
                explain(std::move(request),
                        [exchange](const absl::StatusOr<v1::ExplainResponse>& response) {
                          exchange->Respond(AnswerOf(exchange->request(), response));
                        });
              },
          .match = HttpMatch::kPrefix};
}

}  // namespace tandem
