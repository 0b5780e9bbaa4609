// The status as JSON and as metrics is made from the messages' descriptors: what holds for every
// field, the ones that are still to come included.

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/admin/metrics_table.h"
#include "server/admin/status_json.h"

namespace tandem::telemetry_test {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using ::testing::Contains;
using ::testing::Not;

bool IsNumber(const FieldDescriptor& field) {
  return field.cpp_type() != FieldDescriptor::CPPTYPE_STRING &&
         field.cpp_type() != FieldDescriptor::CPPTYPE_ENUM &&
         field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE;
}

// "Message.field" of all fields that are neither messages nor lists, of `type` and all within it.
void CollectFields(const Descriptor& type, std::map<std::string, const FieldDescriptor*>& fields) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      CollectFields(*field->message_type(), fields);
    } else if (!field->is_repeated()) {
      fields[type.name() + "." + field->name()] = field;
    }
  }
}

std::map<std::string, const FieldDescriptor*> AllFields() {
  std::map<std::string, const FieldDescriptor*> fields;
  CollectFields(*v1::GetStatusResponse::descriptor(), fields);
  return fields;
}

// Gives every field a value of its own, and every list one element. Returns the values by field, as
// JSON prints them; bools are true.
class Filled {
 public:
  Filled() { Fill(status); }

  v1::GetStatusResponse status;
  std::map<std::string, std::string> values;

 private:
  void Fill(Message& message) {
    const Reflection& to = *message.GetReflection();
    const Descriptor& type = *message.GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor* field = type.field(i);
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        Fill(*(field->is_repeated() ? to.AddMessage(&message, field)
                                    : to.MutableMessage(&message, field)));
      } else if (field->is_repeated()) {
        AddNext(message, *field);
      } else {
        SetNext(message, *field);
      }
    }
  }

  int Next() const { return 1000 + static_cast<int>(values.size()); }

  void AddNext(Message& message, const FieldDescriptor& field) {
    const Reflection& to = *message.GetReflection();
    const std::string next = std::to_string(Next());
    const std::string key = field.full_name() + "#" + next;
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        to.AddInt32(&message, &field, Next());
        values[key] = next;
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        to.AddDouble(&message, &field, Next() + 0.5);
        values[key] = next + ".5";
        break;
      default:
        break;  // an enum, whose values have names
    }
  }

  void SetNext(Message& message, const FieldDescriptor& field) {
    const Reflection& to = *message.GetReflection();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) return;  // its values have names
    const int next = Next();
    std::string printed = std::to_string(next);
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_BOOL:
        to.SetBool(&message, &field, true);
        printed = "true";
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        to.SetInt32(&message, &field, next);
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        to.SetInt64(&message, &field, next);
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        to.SetUInt64(&message, &field, static_cast<uint64_t>(next));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        to.SetDouble(&message, &field, next + 0.5);
        printed += ".5";
        break;
      default:
        to.SetString(&message, &field, printed);
        printed = "\"" + printed + "\"";
    }
    values[field.full_name() + "#" + std::to_string(next)] = printed;
  }
};

void CollectLeaves(const nlohmann::json& json, std::multiset<std::string>& leaves) {
  if (!json.is_structured()) {
    leaves.insert(json.dump());
    return;
  }
  for (const auto& [key, value] : json.items()) {
    if (json.is_object()) leaves.insert("\"" + key + "\"");  // of "causes", the keys are values
    CollectLeaves(value, leaves);
  }
}

TEST(StatusJsonTest, HasEveryFieldButTheHashOfTheWeights) {
  const Filled filled;
  std::multiset<std::string> leaves;
  CollectLeaves(ParseJson(StatusJson(filled.status)), leaves);
  ASSERT_GT(filled.values.size(), 90u);
  int hidden = 0;
  for (const auto& [field, printed] : filled.values) {
    if (field.find("weights_hash") != std::string::npos) {
      EXPECT_THAT(leaves, Not(Contains(printed)));
      ++hidden;
    } else {
      EXPECT_THAT(leaves, Contains(printed)) << field;
    }
  }
  EXPECT_EQ(hidden, 1);
}

TEST(StatusJsonTest, AFieldThatIsNotSetIsPrintedAsZero) {
  v1::GetStatusResponse status;
  status.add_workers()->set_name("w");
  const auto json = ParseJson(StatusJson(status));
  EXPECT_EQ(json["requests_total"], 0);
  EXPECT_EQ(json["resumes"]["waited"]["p50_ms"], 0.0);
  EXPECT_EQ(json["resumes"]["causes"], nlohmann::json::object());
  EXPECT_EQ(json["routes"], nlohmann::json::array());
  EXPECT_EQ(json["workers"][0]["running"], 0);
  EXPECT_EQ(json["workers"][0]["kv"]["hit_tokens"], 0);
  EXPECT_EQ(json["workers"][0]["links"], nlohmann::json::array());
}

TEST(StatusJsonTest, EnumsAreNames) {
  v1::GetStatusResponse status;
  v1::CostModel& cost = *status.add_workers()->mutable_load()->mutable_cost();
  cost.set_source(v1::CostModel::SOURCE_MEASURED);
  cost.mutable_gamma()->add_tokens(64);
  cost.mutable_gamma()->add_gamma_ms(0.25);
  status.add_routes(v1::ROUTE_UNIFIED);
  status.add_routes(v1::ROUTE_DISAGGREGATED);
  const auto json = ParseJson(StatusJson(status));
  EXPECT_EQ(json["routes"], nlohmann::json({"unified", "disaggregated"}));
  const auto worker = json["workers"][0];
  EXPECT_EQ(worker["cost"]["source"], "measured");
  EXPECT_EQ(worker["cost"]["gamma"]["tokens"], nlohmann::json({64}));
  EXPECT_EQ(worker["cost"]["gamma"]["gamma_ms"], nlohmann::json({0.25}));
}

TEST(MetricsTableTest, EveryRowNamesANumberAndIsExplained) {
  const std::map<std::string, const FieldDescriptor*> fields = AllFields();
  std::string_view family;
  std::set<std::string> families;
  for (const Metric& metric : Metrics()) {
    if (metric.value == nullptr) {
      const auto field = fields.find(std::string(metric.source));
      ASSERT_NE(field, fields.end()) << metric.source;
      EXPECT_TRUE(IsNumber(*field->second)) << metric.source;
    }
    if (metric.name == family) continue;
    family = metric.name;
    EXPECT_TRUE(families.insert(std::string(family)).second) << family << " is in two places";
    EXPECT_FALSE(metric.help.empty()) << family;
    EXPECT_TRUE(family.starts_with("tandem_")) << family;
  }
}

// A field that is new is either a metric, or here with those that only `tandem status --json`
// shows.
TEST(MetricsTableTest, EveryNumberIsAMetricOrForPeopleOnly) {
  const std::set<std::string> only_in_json = {
      // Not of interest over time.
      "AnswerBufferUse.limit_bytes", "GetStatusResponse.max_context_tokens", "WorkerStatus.pid",
      "WorkerLoad.weights_hash", "OutputLengthUse.tenants", "PrefixIndexUse.limit_bytes",
      "SessionUse.limit",
      // What tandem_connections and its limit say.
      "ConnectionUse.full",
      // What tandem_http_connections and the other metrics of that port say.
      "HttpUse.open", "HttpUse.limit", "HttpUse.requests", "HttpUse.refused", "HttpUse.evicted",
      // Part of tandem_worker_ready.
      "WorkerStatus.alive",
      // Shown by another sum: tandem_resumes_total by cause, tandem_worker_waiting.
      "ResumeUse.lost", "ResumeUse.migrated", "WorkerLoad.waiting_prompt_tokens",
      // Maxima and percentiles of single causes.
      "ResumeUse.max_ms", "ResumeTimes.max_ms", "ResumeCause.p50_ms", "ResumeCause.p99_ms",
      "ResumeCause.max_ms",
      // Details of the KV store.
      "KvUse.fragmentation", "KvUse.copied_blocks", "KvUse.evicted_blocks", "KvUse.swapped",
      "KvUse.swapped_out_blocks", "KvUse.swapped_in_blocks", "KvUse.demoted_blocks",
      "KvUse.restored_blocks", "KvUse.host_prefix_blocks",
      // The coefficients of a cost model other than alpha; beta and its time are made of them.
      "PrefillCost.floor_ms", "PrefillCost.base_ms", "PrefillCost.pair_ms", "Bucket.max_sequences",
      "Bucket.base_ms", "DecodeCost.sequence_ms", "DecodeCost.context_token_ms", "StepKnee.tokens",
      "StepKnee.low", "StepKnee.high"};
  std::set<std::string> missing;
  for (const auto& [name, field] : AllFields()) {
    if (IsNumber(*field)) missing.insert(name);
  }
  for (const Metric& metric : Metrics()) missing.erase(std::string(metric.source));
  EXPECT_EQ(missing, only_in_json);
}

}  // namespace
}  // namespace tandem::telemetry_test
