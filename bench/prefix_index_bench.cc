// What it costs that routers know the prefix caches of workers: on the engine thread, which records
// each block that enters or leaves the cache; in a heartbeat of the most changes; and for a request,
// whose prompt is hashed and looked up. Every worker has 60,000 blocks of 16 tokens cached, among them
// half of the prompt.
//   prefix_index_bench [--rounds N] [--json FILE]
#include <chrono>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/flags.h"
#include "bench/result.h"
#include "kvstore/prefix_journal.h"
#include "nlohmann/json.hpp"
#include "router/prefix/prefix_index.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr PrefixSpace kSpace = {.root = 77, .block_tokens = 16};
constexpr uint64_t kCachedBlocks = 60'000;

template <typename Work>
double Microseconds(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

// Like a chained hash, every value is far from the others.
uint64_t OtherHash(uint64_t number) { return number * 0x9E3779B97F4A7C15U; }

// A full pool, in which each new block evicts another one.
Json MeasureJournal(int rounds) {
  PrefixJournal journal;
  for (uint64_t i = 0; i < kCachedBlocks; ++i) journal.Add(OtherHash(i));
  std::vector<double> microseconds;
  constexpr uint64_t kBlocks = 1000;
  for (int round = 0; round < rounds; ++round) {
    const uint64_t first = kCachedBlocks + kBlocks * round;
    microseconds.push_back(Microseconds([&] {
      for (uint64_t i = first; i < first + kBlocks; ++i) {
        journal.Remove(OtherHash(i - kCachedBlocks));
        journal.Add(OtherHash(i));
      }
    }));
  }
  return {{"ns_per_replaced_block", Median(microseconds)}};
}

std::vector<int32_t> Prompt(int tokens, int32_t first) {
  std::vector<int32_t> prompt(tokens);
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

WorkerId Worker(int number) { return {fmt::format("unified-{:03}", number), 1}; }

// Reports the hashes in pieces, and returns the times that these took.
std::vector<double> Report(PrefixIndex& index, const WorkerId& worker,
                           const std::vector<uint64_t>& hashes) {
  std::vector<double> microseconds;
  uint64_t sequence = 0;
  for (size_t at = 0; at < hashes.size(); at += PrefixIndex::kMostChanges) {
    v1::CacheChanges report;
    report.set_since(sequence);
    report.set_sequence(++sequence);
    const size_t end = std::min<size_t>(hashes.size(), at + PrefixIndex::kMostChanges);
    for (size_t i = at; i < end; ++i) report.add_added(hashes[i]);
    microseconds.push_back(Microseconds([&] { index.Apply(worker, report); }));
  }
  return microseconds;
}

Json MeasureRequest(int workers, int prompt_tokens, int rounds) {
  PrefixIndex index(size_t{1} << 30);
  const std::vector<int32_t> prompt = Prompt(prompt_tokens, 1);
  const auto hashed = HashPrompt({kSpace}, "", prompt);
  const std::vector<uint64_t>& chain = hashed->chains[0].hashes;
  std::vector<double> report_us;
  for (int i = 0; i < workers; ++i) {
    std::vector<uint64_t> hashes(chain.begin(), chain.begin() + chain.size() / 2);
    while (hashes.size() < kCachedBlocks) {
      hashes.push_back(OtherHash(hashes.size() + 1'000'000 * (1 + static_cast<uint64_t>(i))));
    }
    for (const double one : Report(index, Worker(i), hashes)) report_us.push_back(one);
  }
  std::vector<double> hash_us;
  std::vector<double> hit_us;
  std::vector<double> miss_us;
  for (int round = 0; round < rounds; ++round) {
    hash_us.push_back(Microseconds([&] { HashPrompt({kSpace}, "", prompt); }));
    hit_us.push_back(Microseconds([&] { index.Find(*hashed); }));
    const auto other = HashPrompt({kSpace}, "", Prompt(prompt_tokens, 2 + round));
    miss_us.push_back(Microseconds([&] { index.Find(*other); }));
  }
  return {{"workers", workers},
          {"prompt_tokens", prompt_tokens},
          {"workers_found", index.Find(*hashed).size()},
          {"index_bytes", index.Use().bytes()},
          {"hash_us", Median(hash_us)},
          {"lookup_hit_us", Median(hit_us)},
          {"lookup_miss_us", Median(miss_us)},
          {"report_us", Median(report_us)},
          {"changes_per_report", PrefixIndex::kMostChanges}};
}

absl::Status Main(int argc, char** argv) {
  int32_t rounds = 200;
  std::string json_path;
  FlagParser parser;
  parser.Count("--rounds", rounds);
  parser.Text("--json", json_path);
  RETURN_IF_ERROR(parser.Parse(argc, argv));
  Json requests = Json::array();
  for (const int workers : {8, 256}) {
    for (const int tokens : {1'000, 100'000}) {
      requests.push_back(MeasureRequest(workers, tokens, rounds));
    }
  }
  const Json result = {{"bench", "prefix_index"},
                       {"rounds", rounds},
                       {"journal", MeasureJournal(rounds)},
                       {"requests", std::move(requests)}};
  std::puts(result.dump(2).c_str());
  return WriteJson(result, json_path);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::ExitCode("prefix_index_bench", tandem::Main(argc, argv));
}
