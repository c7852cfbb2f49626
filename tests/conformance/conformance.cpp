// SPDX-License-Identifier: Apache-2.0
// Runs files of reference numbers: posenc_conformance FILE...
// One line for each case, `passed`, `failed` or `skipped: why` at its end, and the sums in the last line.
// Exit status: 0 nothing failed, 1 something did, 2 wrong usage.
#include <posenc/core/error.hpp>

#include <cstdio>
#include <exception>
#include <fstream>
#include <string>

#include "cases.hpp"

namespace conformance {
namespace {

struct totals {
  int passed = 0, failed = 0, skipped = 0;
};

using runner = void (*)(const json&, case_report&);

/// What kind of case this is, told by its fields; null if it is none that is known. `list` is what the list is called.
runner runner_of(const std::string& list, const json& c) {
  const auto all = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (!c.contains(name)) return false;
    return true;
  };
  if (!c.is_object()) return nullptr;
  if (all({"kind"})) {
    const json& kind = c.at("kind");
    if (kind == "attention" || kind == "ragged") return run_attention;
    if (kind == "merge") return run_merge;
    if (kind == "rotation") return run_rotation;
    if (kind == "rerotation") return run_rerotation;
    throw skip_case("kind " + kind.dump() + " is not known");
  }
  if (all({"q", "k", "v", "encoding", "output"})) return run_attention;
  if (all({"mode", "n_dims", "input", "output"})) return run_ggml;
  if (all({"q", "k", "q_out", "k_out"})) {
    const std::string implementation = c.value("implementation", "");
    const bool vision =
        all({"position_ids_hw"}) || all({"image_size"}) || implementation.find("vision") != std::string::npos;
    return vision ? run_vision : run_rope_apply;
  }
  if (all({"heads", "slopes_exact"})) return run_alibi_slopes;
  if (all({"num_buckets", "bucket_exact"})) return run_t5_buckets;
  if (all({"d_model", "positions", "table"})) return run_sinusoidal;
  if (all({"theta", "head_dim", "inv_freq_exact", "positions"})) return run_cos_sin;
  if (all({"rope_parameters", "rotary_dim"}) || all({"args", "class", "inv_freq"})) return run_frequencies;
  static_cast<void>(list);
  return nullptr;
}

/// What a case is called: its name, or what tells it from its neighbours.
std::string name_of(const std::string& list, const json& c, std::size_t index) {
  std::string name = list + "[" + std::to_string(index) + "]";
  if (!c.is_object()) return name;
  if (c.contains("name") && c.at("name").is_string()) name = c.at("name").get<std::string>();
  for (const char* key :
       {"heads", "alibi_bias_max", "d_model", "num_buckets", "max_distance", "bidirectional", "theta"}) {
    const bool tells = list != "cases" && c.contains(key) && c.at(key).is_primitive();
    if (tells) name += std::string(" ") + key + " " + c.at(key).dump();
  }
  return name;
}

void print(const std::string& where, const std::string& rest) { std::printf("%s: %s\n", where.c_str(), rest.c_str()); }

void run_case(const std::string& file, const std::string& list, const json& c, std::size_t index, totals& sums) {
  const std::string where = file + " " + name_of(list, c, index);
  case_report report;
  std::string broken;
  try {
    const runner run = runner_of(list, c);
    if (run == nullptr) throw malformed_case("has the fields of no kind of case that is known");
    run(c, report);
  } catch (const skip_case& e) {
    ++sums.skipped;
    print(where, std::string("skipped: ") + e.what());
    return;
  } catch (const malformed_case& e) {
    broken = std::string("malformed: ") + e.what();
  } catch (const json::exception& e) {
    broken = std::string("malformed: ") + e.what();
  } catch (const posenc::error& e) {
    broken = std::string("error: ") + e.what();
  } catch (const std::exception& e) {
    broken = std::string("exception: ") + e.what();
  }
  if (!broken.empty()) report.require(false, broken);
  ++(report.passed() ? sums.passed : sums.failed);
  print(where, report.text());
}

void fail_file(const std::string& file, const std::string& why, totals& sums) {
  ++sums.failed;
  print(file, "failed: " + why);
}

void run_file(const std::string& path, totals& sums) {
  const std::string file = path.substr(path.find_last_of('/') + 1);
  std::ifstream stream(path);
  if (!stream.good()) return fail_file(file, "cannot be read", sums);
  json document;
  try {
    document = json::parse(stream);
  } catch (const json::exception& e) {
    return fail_file(file, std::string("is no JSON: ") + e.what(), sums);
  }
  if (!document.is_object() || !document.contains("data") || !document.at("data").is_object())
    return fail_file(file, "unknown schema: it has no object `data`", sums);
  bool any = false;
  for (const auto& [list, cases] : document.at("data").items()) {
    // Lists of objects are cases; what else is there are remarks.
    if (!cases.is_array() || (!cases.empty() && !cases.front().is_object())) continue;
    any = true;
    for (std::size_t i = 0; i < cases.size(); ++i) run_case(file, list, cases[i], i, sums);
  }
  if (!any) fail_file(file, "unknown schema: `data` has no list of cases", sums);
}

}  // namespace
}  // namespace conformance

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: %s FILE...\nFILEs are JSON files of reference numbers; see README.md beside the source.\n",
                 argv[0]);
    return 2;
  }
  conformance::totals sums;
  for (int i = 1; i < argc; ++i) conformance::run_file(argv[i], sums);
  std::printf("%d passed, %d failed, %d skipped\n", sums.passed, sums.failed, sums.skipped);
  return sums.failed == 0 ? 0 : 1;
}
