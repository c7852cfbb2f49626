// SPDX-License-Identifier: Apache-2.0
// ALiBi's slopes, T5's buckets, sinusoidal tables, exact cosines and sines.
#include <posenc/encoding/add_positions.hpp>
#include <posenc/encoding/alibi.hpp>
#include <posenc/encoding/sinusoidal.hpp>
#include <posenc/encoding/t5_bucket.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>
#include <vector>

#include "cases.hpp"
#include "element_types.hpp"
#include "rope_description.hpp"

namespace conformance {

void run_alibi_slopes(const json& c, case_report& report) {
  const std::vector<double> expected = list(c, "slopes_exact");
  const index_t heads = whole(c, "heads");
  const double max_bias = optional_number(c, "alibi_bias_max").value_or(8);
  const std::vector<double> slopes = posenc::alibi_slopes(heads, max_bias);
  report.require(slopes.size() == expected.size(), "there are " + std::to_string(slopes.size()) + " slopes");
  if (slopes.size() != expected.size()) return;
  const posenc::alibi encoding(heads, {.max_bias = max_bias});
  for (std::size_t h = 0; h < expected.size(); ++h) {
    const double size = std::abs(expected[h]);
    report.compare("double", std::abs(slopes[h] - expected[h]), slope_bound * size);
    report.compare("float", std::abs(static_cast<double>(static_cast<float>(slopes[h])) - expected[h]),
                   float_slope_bound * size);
    report.require(encoding.slopes()[h] == slopes[h], "the encoding has other slopes than alibi_slopes");
  }
}

namespace {

/// The bias of one distance, as the kernel asks for it.
template <class Real, bool Consecutive>
double bias_at(const posenc::t5_bucket& encoding, double distance) {
  using keys = posenc::score_keys<Real, Consecutive>;
  std::vector<double> positions;
  for (int lane = 0; lane < keys::lanes; ++lane) positions.push_back(distance + (Consecutive ? lane : 0));
  const double query = 0;
  Real values[keys::lanes];
  posenc::simd::store(values, encoding.bias(keys(positions.data(), keys::lanes, &query), 0));
  return static_cast<double>(values[0]);
}

}  // namespace

void run_t5_buckets(const json& c, case_report& report) {
  posenc::t5_bucket_options options;
  options.num_buckets = whole(c, "num_buckets");
  options.max_distance = whole(c, "max_distance");
  options.bidirectional = bool_or(c, "bidirectional", true);
  // A table whose entries are the bucket numbers, so that a bias tells its bucket in both compute types.
  std::vector<double> table;
  for (index_t i = 0; i < options.num_buckets; ++i) table.push_back(static_cast<double>(i));
  const posenc::t5_bucket encoding(table.data(), 1, options);
  const auto check = [&](index_t distance, index_t bucket) {
    const auto expected = static_cast<double>(bucket), at = static_cast<double>(distance);
    const auto deviation = [&](double actual) { return std::abs(actual - expected); };
    report.compare("bucket", deviation(static_cast<double>(posenc::t5_relative_bucket(distance, options))), 0);
    report.compare("double", deviation(bias_at<double, false>(encoding, at)), 0);
    report.compare("double", deviation(bias_at<double, true>(encoding, at)), 0);
    report.compare("float", deviation(bias_at<float, false>(encoding, at)), 0);
    report.compare("float", deviation(bias_at<float, true>(encoding, at)), 0);
  };
  const index_t first = whole(c, "table_first"), last = whole(c, "table_last");
  const std::vector<index_t> buckets = whole_list(c, "bucket_exact");
  if (static_cast<index_t>(buckets.size()) != last - first + 1)
    throw malformed_case("bucket_exact does not run from table_first to table_last");
  for (std::size_t i = 0; i < buckets.size(); ++i) check(first + static_cast<index_t>(i), buckets[i]);
  if (has(c, "boundary_relative_positions")) {
    const std::vector<index_t> at = whole_list(c, "boundary_relative_positions");
    const std::vector<index_t> of = whole_list(c, "boundary_bucket_exact");
    if (at.size() != of.size()) throw malformed_case("the lists of boundaries have different lengths");
    for (std::size_t i = 0; i < at.size(); ++i) check(at[i], of[i]);
  }
  if (has(c, "first_distance_of_log_bucket")) {
    index_t bucket = (options.bidirectional ? options.num_buckets / 2 : options.num_buckets) / 2;
    for (const json& first_distance : c.at("first_distance_of_log_bucket")) {
      // A bucket that holds no whole distance has none.
      if (!first_distance.is_null()) {
        const index_t distance = whole(first_distance);
        check(-distance, bucket);
        report.require(distance == 0 || posenc::t5_relative_bucket(-(distance - 1), options) < bucket,
                       "bucket " + std::to_string(bucket) + " begins before distance " + std::to_string(distance));
      }
      ++bucket;
    }
  }
}

namespace {

std::string without_spaces(std::string s) {
  s.erase(std::remove_if(s.begin(), s.end(), [](unsigned char x) { return std::isspace(x) != 0; }), s.end());
  return s;
}

bool contains(const std::string& s, const char* part) { return s.find(part) != std::string::npos; }

/// Reads the words in which a table describes itself, such as "[sin(all),cos(all)] * d^-0.5".
posenc::sinusoidal_options sinusoidal_from(const json& c, index_t width) {
  using namespace posenc;
  const std::string layout = without_spaces(text(c, "layout")), frequency = without_spaces(text(c, "frequency"));
  sinusoidal_options options;
  const std::size_t sine = layout.find("sin"), cosine = layout.find("cos");
  if (sine == std::string::npos || cosine == std::string::npos) throw skip_case("layout " + layout + " is not known");
  options.cos_first = cosine < sine;
  const bool interleaved = contains(layout, "sin0,cos0") || contains(layout, "cos0,sin0");
  const bool halves = contains(layout, "(all)") || contains(layout, "values") || contains(layout, "[sin,cos") ||
                      contains(layout, "[cos,sin");
  if (interleaved == halves) throw skip_case("layout " + layout + " is not known");
  options.layout = interleaved ? sinusoidal_layout::interleaved : sinusoidal_layout::halves;
  options.odd_width = contains(layout, ",0]") || contains(layout, "zero") ? sinusoidal_odd_width::zero_column
                                                                          : sinusoidal_odd_width::extra_column;
  if (contains(layout, "d^-0.5")) {
    options.scale = 1 / std::sqrt(static_cast<double>(width));
  } else if (contains(layout, "*")) {
    throw skip_case("layout " + layout + " is not known");
  }
  const std::size_t power = frequency.find("^(");
  const std::string exponent = power == std::string::npos ? "" : frequency.substr(power + 1);
  if (exponent == "(-k/(d/2-1))" || exponent == "(-k/(d//2-1))") {
    options.divisor = sinusoidal_divisor::half_width_minus_one;
  } else if (exponent != "(-2k/d)" && exponent != "(-k/(d/2))") {
    throw skip_case("frequency " + frequency + " is not known");
  }
  const std::string base = frequency.substr(0, power);
  if (has(c, "theta")) {
    options.base = number(c, "theta");
  } else if (!base.empty() && base.find_first_not_of("0123456789.") == std::string::npos) {
    options.base = std::stod(base);
  } else {
    throw skip_case("frequency " + frequency + " is not known");
  }
  if (has(c, "scale")) options.scale = number(c, "scale");
  options.padding_idx = optional_whole(c, "padding_idx");
  return options;
}

/// The frequency of a column: 0 for one that holds none.
double frequency_of(const posenc::sinusoidal& encoding, index_t column) {
  const bool halves = encoding.options().layout == posenc::sinusoidal_layout::halves;
  const auto count = static_cast<index_t>(encoding.frequencies().size());
  const index_t k = halves ? column % count : column / 2;
  return encoding.frequencies()[static_cast<std::size_t>(k < count ? k : count - 1)];
}

}  // namespace

void run_sinusoidal(const json& c, case_report& report) {
  const index_t width = whole(c, "d_model");
  const posenc::sinusoidal encoding(width, sinusoidal_from(c, width));
  const std::vector<double> positions = list(c, "positions");
  const auto count = static_cast<index_t>(positions.size());
  const array table = numbers(c, "table", {count, width});
  const double largest = table.largest();
  for_each_type([&]<class T>() {
    // Added to zero embeddings: what a model does with it.
    std::vector<T> x(table.values.size(), T(0));
    posenc::add_positions(posenc::view_bhtd(x.data(), 1, 1, count, width),
                          posenc::token_positions(std::span<const double>(positions)), encoding);
    for (index_t t = 0; t < count; ++t)
      for (index_t d = 0; d < width; ++d) {
        const double angle = positions[static_cast<std::size_t>(t)] * frequency_of(encoding, d);
        const double actual = wide(x[static_cast<std::size_t>(t * width + d)]);
        report.compare(type_name<T>(), std::abs(actual - table.at(t, d)), rotation_bound<T>(angle, largest));
      }
  });
}

void run_cos_sin(const json& c, case_report& report) {
  const index_t head_dim = whole(c, "head_dim");
  const rope_description exact{posenc::frequency_ladder(head_dim, {.base = number(c, "theta")})};
  const std::vector<double> inv_freq = list(c, "inv_freq_exact");
  if (static_cast<index_t>(inv_freq.size()) != exact.ladder.size())
    throw malformed_case("inv_freq_exact has another length than head_dim / 2");
  for (std::size_t i = 0; i < inv_freq.size(); ++i)
    report.compare("ladder", std::abs(exact.ladder.inv_freq()[i] - inv_freq[i]), ladder_bound * inv_freq[i]);
  const rope_description rounded{posenc::frequency_ladder::from_inv_freq(list(c, "inv_freq_f32_rounded"))};
  for (const json& at : field(c, "positions")) {
    const double position = number(at, "position");
    compare_cos_sin(exact, position, list(at, "cos_exact"), list(at, "sin_exact"), report);
    if (has(at, "cos_f32_inv_freq"))
      compare_cos_sin(rounded, position, list(at, "cos_f32_inv_freq"), list(at, "sin_f32_inv_freq"), report);
  }
}

}  // namespace conformance
