// SPDX-License-Identifier: Apache-2.0
// Rotating, its transpose, undoing it, and going from one rotation to another.
#include <posenc/core/token_builders.hpp>
#include <posenc/encoding/any_encoding.hpp>
#include <posenc/encoding/rotate.hpp>

#include <cmath>
#include <vector>

#include "cases.hpp"
#include "element_types.hpp"
#include "rope_description.hpp"

namespace conformance {

namespace {

/// Positions [batch][token], or [axis][batch][token] where there are several axes.
posenc::token_list tokens_from(const json& c, const char* name, index_t batch, index_t count) {
  const array positions = numbers(c, name);
  posenc::token_list tokens;
  tokens.axes = positions.rank() == 3 ? positions.extent(0) : 1;
  tokens.batch = positions.rank() == 1 ? 1 : positions.extent(positions.rank() - 2);
  tokens.count = positions.extent(positions.rank() - 1);
  if (tokens.count != count || (tokens.batch != 1 && tokens.batch != batch))
    throw malformed_case(std::string(name) + " does not fit x");
  tokens.positions = positions.values;
  if (tokens.axes > 1) tokens.order.assign(static_cast<std::size_t>(tokens.batch * count), 0);
  return tokens;
}

/// Vectors [batch][head][token][dim] as the case holds them.
struct vectors {
  array x;

  vectors(const json& c, const char* name) : x(numbers(c, name)) {
    if (x.rank() != 4) throw malformed_case(std::string(name) + " is not [batch][head][token][dim]");
  }

  template <class T>
  posenc::tensor_view<T> view(std::vector<T>& data) const {
    return posenc::view_bhtd(data.data(), x.extent(0), x.extent(1), x.extent(2), x.extent(3));
  }
  index_t count() const { return x.extent(2); }
};

/// Compares a result with what is expected. `angle(batch, token, d)` is that of the double bound.
template <class T, class Angle>
void compare(const std::vector<T>& actual, const array& expected, double largest, Angle&& angle, case_report& report) {
  std::size_t at = 0;
  for (index_t b = 0; b < expected.extent(0); ++b)
    for (index_t h = 0; h < expected.extent(1); ++h)
      for (index_t t = 0; t < expected.extent(2); ++t)
        for (index_t d = 0; d < expected.extent(3); ++d, ++at)
          report.compare(type_name<T>(), std::abs(wide(actual[at]) - expected.values[at]),
                         rotation_bound<T>(angle(b, t, d), largest));
}

auto angle_of(const rope_description& rope, const posenc::token_list& tokens, double shift = 0) {
  return [&rope, view = tokens.view(), shift](index_t b, index_t t, index_t d) {
    return std::abs(rope.angle(d, [&](index_t axis) { return view.position(axis, b, t) + shift; }));
  };
}

/// Runs f in place and out of place, as it is and as an encoding chosen at run time.
template <class T, class F>
std::vector<T> in_all_ways(const vectors& x, const char* what, case_report& report, F&& f) {
  std::vector<T> in_place = elements<T>(x.x.values);
  const std::vector<T> given = in_place;
  std::vector<T> out(given.size(), T(0)), erased = given;
  std::vector<T> from = given;
  f(x.view(in_place), x.view(in_place), false);
  f(x.view(from), x.view(out), false);
  f(x.view(erased), x.view(erased), true);
  for (std::size_t i = 0; i < given.size(); ++i) {
    report.require(wide(in_place[i]) == wide(out[i]), std::string(what) + " differs in place and out of place");
    report.require(wide(in_place[i]) == wide(erased[i]), std::string(what) + " differs with any_encoding");
  }
  return in_place;
}

posenc::token_role role_from(const json& c) {
  const std::string role = c.contains("role") ? text(c, "role") : "key";
  if (role != "key" && role != "query") throw skip_case("role " + role + " is not known");
  return role == "key" ? posenc::token_role::key : posenc::token_role::query;
}

rope_description rotation_from(const json& encoding) {
  const std::string type = text(encoding, "type");
  if (type != "rope") throw skip_case("rotations of encoding type " + type + " are not known");
  return rope_from(encoding);
}

}  // namespace

void run_rotation(const json& c, case_report& report) {
  const rope_description rope = rotation_from(field(c, "encoding"));
  const vectors x(c, "x");
  const posenc::token_list tokens = tokens_from(c, "positions", x.x.extent(0), x.count());
  const posenc::rotate_options options{.role = role_from(c)};
  rope.visit([&](const auto& encoding) {
    const posenc::any_encoding any(encoding);
    const auto run = [&]<class T>(const char* name, auto&& operation) {
      const array expected = numbers(c, name, x.x.extents);
      const double largest = std::fmax(x.x.largest(), expected.largest());
      const auto actual = in_all_ways<T>(x, name, report, [&](auto in, auto out, bool erased) {
        erased ? operation(in, out, any) : operation(in, out, encoding);
      });
      compare(actual, expected, largest, angle_of(rope, tokens), report);
    };
    for_each_type([&]<class T>() {
      run.template operator()<T>(
          "rotated", [&](auto in, auto out, const auto& e) { posenc::rotate(in, out, tokens.view(), e, options); });
      run.template operator()<T>("rotate_transposed", [&](auto in, auto out, const auto& e) {
        posenc::rotate_transposed(in, out, tokens.view(), e, options);
      });
      run.template operator()<T>(
          "unrotated", [&](auto in, auto out, const auto& e) { posenc::unrotate(in, out, tokens.view(), e, options); });
    });
  });
}

void run_rerotation(const json& c, case_report& report) {
  const rope_description from = rotation_from(field(c, "encoding_from")), to = rotation_from(field(c, "encoding_to"));
  if (from.xpos_base > 0 || to.xpos_base > 0) throw skip_case("going over from or to xPos is not known here");
  const posenc::rope from_rope = from.make(), to_rope = to.make();
  const posenc::any_encoding any_from(from_rope), any_to(to_rope);
  const double shift = number(c, "shift");
  const vectors x(c, "x"), cached(c, "cached");
  if (cached.x.extents != x.x.extents) throw malformed_case("cached has other extents than x");
  const array rerotated = numbers(c, "rerotated", x.x.extents);
  const posenc::token_list tokens = tokens_from(c, "positions", x.x.extent(0), x.count());
  const double largest_cached = std::fmax(x.x.largest(), cached.x.largest());
  const double largest = std::fmax(cached.x.largest(), rerotated.largest());
  for_each_type([&]<class T>() {
    const auto stored = in_all_ways<T>(x, "cached", report, [&](auto in, auto out, bool erased) {
      erased ? posenc::rotate(in, out, tokens.view(), any_from) : posenc::rotate(in, out, tokens.view(), from_rope);
    });
    compare(stored, cached.x, largest_cached, angle_of(from, tokens), report);
    const auto moved = in_all_ways<T>(cached, "rerotated", report, [&](auto in, auto out, bool erased) {
      erased ? posenc::rerotate(in, out, tokens.view(), any_from, any_to, shift)
             : posenc::rerotate(in, out, tokens.view(), from_rope, to_rope, shift);
    });
    const auto before = angle_of(from, tokens), after = angle_of(to, tokens, shift);
    compare(
        moved, rerotated, largest,
        [&](index_t b, index_t t, index_t d) { return std::fmax(before(b, t, d), after(b, t, d)); }, report);
  });
}

}  // namespace conformance
