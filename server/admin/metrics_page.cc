#include "server/admin/metrics_page.h"

#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "fmt/format.h"
#include "server/admin/metrics_table.h"

namespace tandem {
namespace {

using google::protobuf::DynamicCastToGenerated;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// A message within a status, and the labels of the samples that come from it.
struct Subject {
  const Message* message;
  MetricLabels labels;
  std::string server;  // the value of the label kServerLabel
};

// All messages within a status, by the names of their types. Links that cannot be used are left
// out, and so are links to peers that are not among `workers`: the router has not named these yet,
// and their address, which changes with each start, would become a label.
class Subjects {
 public:
  Subjects(const Message& status, std::set<std::string> workers) : workers_(std::move(workers)) {
    Add({.message = &status, .labels = {}, .server = "router"});
  }

  std::span<const Subject> Of(std::string_view type) const {
    const auto found = by_type_.find(type);
    return found == by_type_.end() ? std::span<const Subject>() : found->second;
  }

 private:
  void Add(Subject subject) {
    if (const auto* link = DynamicCastToGenerated<v1::LinkStatus>(subject.message)) {
      if (!link->unreachable().empty() || !workers_.contains(link->peer())) return;
      subject.labels = {
          {"worker", subject.server}, {"peer", link->peer()}, {"transport", link->transport()}};
    } else if (const auto* worker = DynamicCastToGenerated<v1::WorkerStatus>(subject.message)) {
      subject.labels = {{"worker", worker->name()}, {"role", worker->role()}};
      subject.server = worker->name();
    } else if (const auto* cause = DynamicCastToGenerated<v1::ResumeCause>(subject.message)) {
      subject.labels = {{"cause", cause->cause()}};
    } else if (const auto* refusal = DynamicCastToGenerated<v1::TlsRefusal>(subject.message)) {
      subject.labels = {{std::string(kServerLabel), subject.server},
                        {"port", refusal->port()},
                        {"reason", refusal->reason()}};
    } else if (const auto* proof = DynamicCastToGenerated<v1::RouteProof>(subject.message)) {
      subject.labels = {{"route", proof->route()}};
    } else if (const auto* tenant = DynamicCastToGenerated<v1::TenantUse>(subject.message)) {
      subject.labels = {{"tenant", tenant->tenant()}};
    } else if (const auto* use = DynamicCastToGenerated<v1::PredictionUse>(subject.message)) {
      subject.labels = {{"policy", use->policy()}};
    } else if (const auto* error = DynamicCastToGenerated<v1::PredictionError>(subject.message)) {
      subject.labels.push_back({"term", error->term()});
      if (!error->worker().empty()) subject.labels.push_back({"worker", error->worker()});
      if (!error->peer().empty()) subject.labels.push_back({"peer", error->peer()});
    }
    AddParts(subject);
    by_type_[subject.message->GetDescriptor()->name()].push_back(std::move(subject));
  }

  void AddParts(const Subject& whole) {
    const Reflection& reflection = *whole.message->GetReflection();
    const google::protobuf::Descriptor& type = *whole.message->GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor* field = type.field(i);
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
      Subject part = whole;
      if (!field->is_repeated()) {
        part.message = &reflection.GetMessage(*whole.message, field);
        Add(std::move(part));
        continue;
      }
      for (int j = 0; j < reflection.FieldSize(*whole.message, field); ++j) {
        part.message = &reflection.GetRepeatedMessage(*whole.message, field, j);
        Add(part);
      }
    }
  }

  const std::set<std::string> workers_;
  std::map<std::string, std::vector<Subject>, std::less<>> by_type_;
};

double Number(const Message& message, const FieldDescriptor* field) {
  const Reflection& reflection = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, field);
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return static_cast<double>(reflection.GetInt64(message, field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return static_cast<double>(reflection.GetUInt64(message, field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.GetDouble(message, field);
    default:
      TANDEM_CHECK(false, fmt::format("{} is not a number", field->full_name()));
      return 0;
  }
}

// The factor that converts a field to Prometheus' units, seconds and bytes. The end of the field's
// name tells its unit.
double UnitOf(std::string_view field) {
  if (field.ends_with("_ms")) return 1e-3;
  if (field.ends_with("_us")) return 1e-6;
  return field.ends_with("gb_per_s") ? 1e9 : 1;
}

double Value(const Metric& metric, const Message& message) {
  if (metric.value != nullptr) return metric.value(message);
  const std::string name(metric.source.substr(metric.source.find('.') + 1));
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  TANDEM_CHECK(field != nullptr, fmt::format("{} names no field", metric.source));
  return Number(message, field) * UnitOf(name);
}

MetricLabels LabelsOf(const Metric& metric, const Subject& subject) {
  if (metric.label_name == kServerLabel) return {{std::string(kServerLabel), subject.server}};
  MetricLabels labels = subject.labels;
  if (!metric.label_name.empty()) {
    labels.emplace_back(metric.label_name, metric.label_value);
  }
  return labels;
}

MetricFamily& FamilyOf(const Metric& metric, std::vector<MetricFamily>& families) {
  if (families.empty() || families.back().name != metric.name) {
    const MetricKind kind =
        metric.name.ends_with("_total") ? MetricKind::kCounter : MetricKind::kGauge;
    families.push_back(
        {.name = std::string(metric.name), .help = std::string(metric.help), .kind = kind});
  }
  return families.back();
}

std::vector<MetricFamily> Families(const Subjects& subjects,
                                   const std::function<bool(const Metric&)>& is_known) {
  std::vector<MetricFamily> families;
  for (const Metric& metric : Metrics()) {
    if (!is_known(metric)) continue;
    MetricFamily& family = FamilyOf(metric, families);
    for (const Subject& subject : subjects.Of(metric.source.substr(0, metric.source.find('.')))) {
      family.samples.push_back(
          {.labels = LabelsOf(metric, subject), .value = Value(metric, *subject.message)});
    }
  }
  return families;
}

}  // namespace

std::vector<MetricFamily> StatusMetrics(const v1::GetStatusResponse& status) {
  std::set<std::string> workers;
  for (const v1::WorkerStatus& worker : status.workers()) workers.insert(worker.name());
  return Families(Subjects(status, std::move(workers)), [](const Metric&) { return true; });
}

// The metrics that a worker knows of itself: the fields of WorkerStatus are left out, because they
// are what a router knows of a worker, such as the age of its heartbeat.
std::vector<MetricFamily> WorkerMetrics(const v1::WorkerStatus& worker,
                                        const std::set<std::string>& peers) {
  return Families(Subjects(worker, peers),
                  [](const Metric& metric) { return !metric.source.starts_with("WorkerStatus."); });
}

}  // namespace tandem
