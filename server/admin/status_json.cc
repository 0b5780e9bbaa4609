#include "server/admin/status_json.h"

#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "server/commands/generation.h"

namespace tandem {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

// The field that is left out of the JSON, because only the router and its workers may know it.
constexpr std::string_view kSecret = "tandem.v1.WorkerLoad.weights_hash";
// The field whose message is inlined: its fields become fields of the object around it.
constexpr std::string_view kInlined = "tandem.v1.WorkerStatus.load";
// The list that becomes a JSON object, and the field of its elements that becomes the key.
constexpr std::string_view kKeyed = "tandem.v1.ResumeUse.causes";
constexpr char kKey[] = "cause";

// How an optional field that was not set is printed.
enum class Unset : uint8_t { kZero, kNull };

Json ToJson(const Message& message, Unset unset);

Json EnumToJson(const FieldDescriptor* field, int value) {
  if (field->enum_type() == v1::Route_descriptor()) return Name(static_cast<v1::Route>(value));
  if (field->enum_type() == v1::FinishReason_descriptor()) {
    return Name(static_cast<v1::FinishReason>(value));
  }
  if (field->enum_type() == v1::CostModel::Source_descriptor()) {
    return Name(static_cast<v1::CostModel::Source>(value));
  }
  TANDEM_CHECK(false, fmt::format("{} has no form in JSON", field->full_name()));
  return nullptr;
}

Json OneToJson(const Message& message, const FieldDescriptor* field, Unset unset) {
  const Reflection& from = *message.GetReflection();
  if (unset == Unset::kNull && field->has_presence() && !from.HasField(message, field)) {
    return nullptr;
  }
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return from.GetBool(message, field);
    case FieldDescriptor::CPPTYPE_INT32:
      return from.GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return from.GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return from.GetUInt64(message, field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return from.GetDouble(message, field);
    case FieldDescriptor::CPPTYPE_STRING:
      return from.GetString(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumToJson(field, from.GetEnumValue(message, field));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToJson(from.GetMessage(message, field), unset);
    default:
      TANDEM_CHECK(false, fmt::format("{} has no form in JSON", field->full_name()));
      return nullptr;
  }
}

Json ElementToJson(const Message& message, const FieldDescriptor* field, int index, Unset unset) {
  const Reflection& from = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return from.GetRepeatedInt32(message, field, index);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return from.GetRepeatedDouble(message, field, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumToJson(field, from.GetRepeatedEnumValue(message, field, index));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToJson(from.GetRepeatedMessage(message, field, index), unset);
    default:
      TANDEM_CHECK(false, fmt::format("a list of {} has no form in JSON", field->full_name()));
      return nullptr;
  }
}

Json ListToJson(const Message& message, const FieldDescriptor* field, Unset unset) {
  Json list = Json::array();
  for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i) {
    list.push_back(ElementToJson(message, field, i, unset));
  }
  return list;
}

Json ByKey(const Json& list) {
  Json object = Json::object();
  for (Json element : list) {
    const std::string key = element[kKey];
    element.erase(kKey);
    object[key] = std::move(element);
  }
  return object;
}

Json ToJson(const Message& message, Unset unset) {
  const Descriptor& type = *message.GetDescriptor();
  Json json = Json::object();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    if (field->full_name() == kSecret) continue;
    Json value =
        field->is_repeated() ? ListToJson(message, field, unset) : OneToJson(message, field, unset);
    if (field->full_name() == kInlined) {
      json.update(value);
    } else {
      json[field->name()] = field->full_name() == kKeyed ? ByKey(value) : std::move(value);
    }
  }
  return json;
}

}  // namespace

std::string StatusJson(const v1::GetStatusResponse& status) {
  return JsonText(ToJson(status, Unset::kZero));
}

std::string StatusJson(const v1::GetStatusResponse& status, const StatusSupplement& more) {
  Json json = ToJson(status, Unset::kZero);
  json["requests"] = nullptr;
  if (more.latest.ok()) json.update(ToJson(*more.latest, Unset::kNull));
  json["requests_missing"] = std::string(more.latest.status().message());
  json["links_left_out"] = more.links_left_out;
  json["prediction_errors_left_out"] = more.prediction_errors_left_out;
  return JsonText(json);
}

std::string HandoffJson(const v1::RequestExplanation& request) {
  Json totals = {{"k_kv_bytes", uint64_t{0}}, {"k_wire_bytes", uint64_t{0}},
                 {"v_kv_bytes", uint64_t{0}}, {"v_wire_bytes", uint64_t{0}},
                 {"k_escapes", uint64_t{0}},  {"v_escapes", uint64_t{0}},
                 {"blocks", uint64_t{0}},     {"raw_blocks", uint64_t{0}}};
  Json handoff = ToJson(request.handoff(), Unset::kZero);
  for (const Json& layer : handoff["layers"]) {
    for (auto& [name, total] : totals.items()) {
      total = total.get<uint64_t>() + layer[name].get<uint64_t>();
    }
  }
  handoff["totals"] = std::move(totals);
  const Json json = {{"request_id", request.request_id()},
                     {"prompt_tokens", request.prompt_tokens()},
                     {"kv_quality", request.kv_quality()},
                     {"handoff", std::move(handoff)}};
  return JsonText(json);
}

std::string ExplanationJson(const v1::ExplainResponse& response) {
  return JsonText(ToJson(response, Unset::kNull));
}

}  // namespace tandem
