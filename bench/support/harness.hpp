// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_BENCH_SUPPORT_HARNESS_HPP
#define POSENC_BENCH_SUPPORT_HARNESS_HPP

#include <benchmark/benchmark.h>
#include <posenc/simd/simd.hpp>
#include <posenc/version.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sys/resource.h>
#endif

/// Benchmarks that compare: a piece of work beside the hardware's limit for it and a raw loop, in the same run. On shared
/// machines the speed of everything changes from second to second, so the three alternate and only ratios count.
namespace posenc_bench {

/// Something that the work is measured against.
struct reference {
  std::string name;           ///< "limit", "baseline", ...: the counter is <name>_ratio
  std::function<void()> run;  ///< one call
  double amount = 0;          ///< bytes or operations of one call, where they are not those of the work
};

struct comparison {
  std::function<void()> work;           ///< one call
  double bytes = 0;                     ///< that one call reads and writes; 0: not a matter of bytes
  double flops = 0;                     ///< of one call; 0: not a matter of arithmetic
  std::vector<reference> references;    ///< the limit first
  std::function<std::string()> verify;  ///< called after timing; what is wrong with the result, or nothing
};

namespace detail {

inline constexpr int least_rounds = 9, most_rounds = 61;
inline constexpr double sample_seconds = 1.5e-3, enough_seconds = 0.4;

inline double seconds_of(const std::function<void()>& run, long calls) {
  const auto start = std::chrono::steady_clock::now();
  for (long i = 0; i < calls; ++i) run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// How often this thread had to make room for another one; 0 where the system does not say.
inline long times_preempted() {
#if defined(__linux__) && defined(RUSAGE_THREAD)
  rusage usage{};
  if (getrusage(RUSAGE_THREAD, &usage) == 0) return usage.ru_nivcsw;
#endif
  return 0;
}

/// One function and its samples, each of enough calls to be long against the clock and the noise of a switch.
class sampled {
 public:
  explicit sampled(const std::function<void()>& run) : run_(run) {
    seconds_of(run_, 1);
    double seconds = seconds_of(run_, calls_);
    while (seconds < sample_seconds) {
      calls_ = std::max(calls_ + 1, static_cast<long>(1.2 * static_cast<double>(calls_) * sample_seconds /
                                                      std::max(seconds, sample_seconds / 100)));
      seconds = seconds_of(run_, calls_);
    }
  }

  /// A sample during which another program had the core says nothing, so it is taken again; not for ever, since long ones
  /// are never left alone on a busy machine.
  void sample() {
    double least = 1e99;
    for (int attempt = 0; attempt < 4; ++attempt) {
      const long before = times_preempted();
      least = std::min(least, seconds_of(run_, calls_));
      if (times_preempted() == before) break;
    }
    samples_.push_back(least / static_cast<double>(calls_));
  }
  double best() const { return *std::min_element(samples_.begin(), samples_.end()); }
  const std::vector<double>& samples() const { return samples_; }

 private:
  const std::function<void()>& run_;
  long calls_ = 1;
  std::vector<double> samples_;
};

inline double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.size() % 2 != 0 ? x[x.size() / 2] : (x[x.size() / 2 - 1] + x[x.size() / 2]) / 2;
}

using counters = std::vector<std::pair<std::string, double>>;

/// Rounds of one sample each, the references before and after the work in turn. A ratio is the speed of the work as a
/// multiple of the reference's: 1 as limit_ratio is the hardware's limit, 2 as baseline_ratio twice as fast as the loop.
inline counters measure(const comparison& c) {
  sampled work(c.work);
  std::vector<sampled> references;
  references.reserve(c.references.size());
  for (const reference& r : c.references) references.emplace_back(r.run);
  double spent = 0;
  for (int round = 0; round < most_rounds && (round < least_rounds || spent < enough_seconds); ++round) {
    spent += seconds_of(
        [&] {
          for (std::size_t i = 0; i < references.size(); i += 2) references[i].sample();
          work.sample();
          for (std::size_t i = 1; i < references.size(); i += 2) references[i].sample();
        },
        1);
  }

  counters result;
  const double amount = c.flops > 0 ? c.flops : c.bytes;
  if (c.bytes > 0) result.emplace_back("bytes_per_second", c.bytes / work.best());
  if (c.flops > 0) result.emplace_back("items_per_second", c.flops / work.best());
  for (std::size_t i = 0; i < references.size(); ++i) {
    const reference& r = c.references[i];
    const double scale = r.amount > 0 ? amount / r.amount : 1;
    std::vector<double> ratios;
    for (std::size_t j = 0; j < work.samples().size(); ++j)
      ratios.push_back(scale * references[i].samples()[j] / work.samples()[j]);
    result.emplace_back(r.name + "_ratio", scale * references[i].best() / work.best());
    result.emplace_back(r.name + "_ratio_median", median(std::move(ratios)));
  }
  return result;
}

/// What the benchmark that runs now has made and measured. Google Benchmark calls a benchmark several times to find out
/// how often to run it; the comparison is made, timed and verified the first time.
struct running {
  std::string name;
  comparison compared;
  counters measured;
  std::string wrong;
};

inline std::unique_ptr<running>& current() {
  static std::unique_ptr<running> one;
  return one;
}

inline bool& any_wrong() {
  static bool wrong = false;
  return wrong;
}

inline void run_one(benchmark::State& state, const std::string& name, const std::function<comparison()>& make) {
  std::unique_ptr<running>& now = current();
  if (!now || now->name != name) {
    now.reset();  // frees the former one's memory first
    now = std::make_unique<running>(running{name, make(), {}, {}});
    now->measured = measure(now->compared);
    now->wrong = now->compared.verify ? now->compared.verify() : std::string();
  }
  if (!now->wrong.empty()) {
    any_wrong() = true;
    state.SkipWithError(now->wrong.c_str());
    return;
  }
  for (auto _ : state) now->compared.work();
  for (const auto& [key, value] : now->measured) state.counters[key] = benchmark::Counter(value);
}

}  // namespace detail

/// Registers a benchmark under exactly this name. `make` builds its buffers when the benchmark is run.
inline void add(const std::string& name, const std::function<comparison()>& make) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [name, make](benchmark::State& state) { detail::run_one(state, name, make); });
}

/// Runs what Google Benchmark's options ask for. The time that it prints is the plain mean of some calls; the ratios are
/// from `measure`. Not 0 if a result was wrong, or no benchmark was meant.
inline int run(int argc, char** argv) {
  // A fraction of a millisecond keeps the printed mean from costing more time than the measurement.
  std::string least_time = "--benchmark_min_time=0.0005";
  std::vector<char*> arguments(argv, argv + argc);
  arguments.insert(arguments.begin() + (argc > 0 ? 1 : 0), least_time.data());
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;
  benchmark::AddCustomContext("posenc", posenc::version);
  benchmark::AddCustomContext("isa", posenc::simd::isa());
#if defined(__clang__)
  benchmark::AddCustomContext("compiler", "clang " __clang_version__);
#else
  benchmark::AddCustomContext("compiler", "gcc " __VERSION__);
#endif
#if !defined(__OPTIMIZE__)
  benchmark::AddCustomContext("optimised", "no: these numbers mean nothing");
#endif
  const std::size_t ran = benchmark::RunSpecifiedBenchmarks();
  detail::current().reset();
  benchmark::Shutdown();
  return ran == 0 || detail::any_wrong() ? 1 : 0;
}

}  // namespace posenc_bench

#endif  // POSENC_BENCH_SUPPORT_HARNESS_HPP
