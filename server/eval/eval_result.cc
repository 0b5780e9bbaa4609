#include "server/eval/eval_result.h"

#include <array>
#include <cmath>

namespace tandem {
namespace {

using Value = std::optional<double>;
using Worst = Measure::Worst;

// The value, for windows whose KV was moved between workers; nothing for others.
Value OfMovedKv(const WindowResult& window, double value) {
  return window.kv.raw() > 0 && window.kv.wire() > 0 ? Value(value) : std::nullopt;
}

Value Share(std::optional<bool> found) { return found ? Value(*found ? 1 : 0) : std::nullopt; }

bool IsWorse(Worst worst, double value, double than) {
  return worst == Worst::kHighest ? value > than : value < than;
}

}  // namespace

std::span<const Measure> MeasuresOf(const EvalSubject& subject) {
  constexpr size_t kOfPlantedFacts = 2;  // the measures of planted facts, at the end of kMeasures
  static constexpr auto kMeasures = std::to_array<Measure>({
      {"baseline_perplexity", "perplexity, baseline", "ppl base", Worst::kHighest, 4,
       [](const WindowResult& w) { return Value(w.change.baseline_perplexity); }},
      {"perplexity", "perplexity, tested", "ppl", Worst::kHighest, 4,
       [](const WindowResult& w) { return Value(w.change.perplexity); }},
      {"perplexity_change_percent", "change of perplexity (%)", "change %", Worst::kHighest, 4,
       [](const WindowResult& w) { return Value(w.change.perplexity_change_percent()); }},
      {"top1_agreement", "top-1 agreement", "top-1", Worst::kLowest, 4,
       [](const WindowResult& w) { return Value(w.change.top1_agreement); }},
      {"kl_nats", "KL divergence, at least (nats)", "KL", Worst::kHighest, 7,
       [](const WindowResult& w) { return Value(w.change.kl_nats); }},
      {"kv_raw_bytes", "KV (bytes)", "KV bytes", Worst::kHighest, 0,
       [](const WindowResult& w) { return OfMovedKv(w, static_cast<double>(w.kv.raw())); }},
      {"kv_wire_bytes", "KV on the wire (bytes)", "on the wire", Worst::kHighest, 0,
       [](const WindowResult& w) { return OfMovedKv(w, static_cast<double>(w.kv.wire())); }},
      {"kv_raw_over_wire", "KV bytes / bytes on the wire", "ratio", Worst::kLowest, 4,
       [](const WindowResult& w) {
         return OfMovedKv(w, static_cast<double>(w.kv.raw()) / static_cast<double>(w.kv.wire()));
       }},
      {"baseline_found", "planted fact found, baseline", "found base", Worst::kLowest, 4,
       [](const WindowResult& w) { return Share(w.baseline_found); }},
      {"found", "planted fact found, tested", "found", Worst::kLowest, 4,
       [](const WindowResult& w) { return Share(w.found); }},
  });
  return std::span(kMeasures).first(kMeasures.size() - (subject.planted ? 0 : kOfPlantedFacts));
}

std::optional<MeasureTotal> TotalOf(const Measure& measure,
                                    const std::vector<WindowResult>& windows) {
  std::optional<MeasureTotal> total;
  std::vector<double> values;
  for (size_t i = 0; i < windows.size(); ++i) {
    const Value value = measure.of(windows[i]);
    if (!value) continue;
    if (!total || IsWorse(measure.worst, *value, total->worst)) {
      if (!total) total.emplace();
      total->worst = *value;
      total->worst_window = i;
    }
    values.push_back(*value);
  }
  if (!total) return total;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) total->mean += value / count;
  if (values.size() < 2) return total;
  double squares = 0;
  for (const double value : values) squares += (value - total->mean) * (value - total->mean);
  total->standard_error = std::sqrt(squares / (count - 1) / count);
  return total;
}

}  // namespace tandem
