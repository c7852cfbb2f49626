// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_ANY_ENCODING_HPP
#define POSENC_ENCODING_ANY_ENCODING_HPP

#include <concepts>
#include <type_traits>
#include <utility>

#include "../attention/policies.hpp"
#include "../core/shared_object.hpp"
#include "concepts.hpp"
#include "diagnostics.hpp"
#include "rotated_dims.hpp"

namespace posenc::inline POSENC_ABI {

/// An encoding for attention chosen at run time. It holds a copy of any such encoding; copies share it. Attention reaches
/// the held one as directly as one named in the source, so it costs the same. Wrap first and choose then:
/// any_encoding(rotated_keys(rope)), not rotated_keys(any_encoding(rope)), which reaches biases one vector at a time.
class any_encoding {
 public:
  using acts_on = places<on_queries_keys, on_scores>;

  template <class E>
    requires(!std::same_as<E, any_encoding> && lists_places<E>)
  any_encoding(E encoding) {  // NOLINT(google-explicit-constructor)
    if constexpr (detail::check_attention_encoding<E>()) {
      held_ = detail::shared_object::make<E>(std::move(encoding));
      const E& held = *static_cast<const E*>(held_.get());
      single_ = detail::encoding_policy_of<float>(held);
      double_ = detail::encoding_policy_of<double>(held);
      extra_ = &extra_of<E>;
    }
  }

  /// Whether the held encoding acts on queries and keys, or on scores.
  bool rotates() const noexcept { return single_.rotation != nullptr; }
  bool biases() const noexcept { return single_.bias != nullptr; }

  /// Whether the held encoding may turn queries and keys differently.
  bool tells_roles_apart() const noexcept { return extra_->tells_roles_apart; }

  index_t rotation_size(rotation_shape shape) const {
    return rotates() ? single_.rotation->size(single_.encoding, shape) : 0;
  }
  template <class Real>
  void prepare_rotation(rotation_shape shape, position_span position, rotation_use use, Real* row) const {
    const auto policy = erased<Real>();
    if (policy.rotation != nullptr) policy.rotation->prepare(policy.encoding, shape, position, use, row);
  }
  template <class Real>
  void apply_rotation(rotation_shape shape, const Real* row, index_t kv_head, Real* x) const {
    const auto policy = erased<Real>();
    if (policy.rotation != nullptr) policy.rotate(shape, row, kv_head, x);
  }
  dim_range rotated_dims(rotation_shape shape) const { return extra_->rotated_dims(held_.get(), shape); }

  template <class Real, bool Consecutive>
  simd::vec<Real> bias(const score_keys<Real, Consecutive>& keys, index_t head) const {
    simd::vec<Real> sum(0);
    extra_->bias(keys, held_.get(), head, sum);
    return sum;
  }

  maybe_error check(const encoding_use& use) const noexcept { return extra_->check(held_.get(), use); }

  template <class Real>
  detail::encoding_policy<Real> erased() const noexcept {
    if constexpr (std::is_same_v<Real, double>) {
      return double_;
    } else {
      return single_;
    }
  }

 private:
  /// One vector of biases, for encodings that hold this one.
  template <class Real, bool Consecutive>
  using bias_function = void (*)(const void*, const score_keys<Real, Consecutive>&, index_t head, simd::vec<Real>& out);

  struct extra_functions {
    bool tells_roles_apart;
    maybe_error (*check)(const void*, const encoding_use&);
    dim_range (*rotated_dims)(const void*, rotation_shape);
    bias_function<float, true> float_consecutive;
    bias_function<float, false> float_any;
    bias_function<double, true> double_consecutive;
    bias_function<double, false> double_any;

    void bias(const score_keys<float, true>& k, const void* e, index_t head, simd::vec<float>& out) const {
      float_consecutive(e, k, head, out);
    }
    void bias(const score_keys<float, false>& k, const void* e, index_t head, simd::vec<float>& out) const {
      float_any(e, k, head, out);
    }
    void bias(const score_keys<double, true>& k, const void* e, index_t head, simd::vec<double>& out) const {
      double_consecutive(e, k, head, out);
    }
    void bias(const score_keys<double, false>& k, const void* e, index_t head, simd::vec<double>& out) const {
      double_any(e, k, head, out);
    }
  };

  template <class E, class Real, bool Consecutive>
  static void bias_of(const void* e, const score_keys<Real, Consecutive>& keys, index_t head, simd::vec<Real>& out) {
    if constexpr (posenc::acts_on<E, on_scores>) out = static_cast<const E*>(e)->bias(keys, head);
  }

  template <class E>
  static constexpr extra_functions extra_of{detail::depends_on_role<E>(),
                                            [](const void* e, const encoding_use& use) -> maybe_error {
                                              return detail::check_encoding(*static_cast<const E*>(e), use);
                                            },
                                            [](const void* e, rotation_shape shape) -> dim_range {
                                              if constexpr (posenc::acts_on<E, on_queries_keys>) {
                                                return detail::rotated_dims_of(*static_cast<const E*>(e), shape);
                                              } else {
                                                return {};
                                              }
                                            },
                                            &bias_of<E, float, true>,
                                            &bias_of<E, float, false>,
                                            &bias_of<E, double, true>,
                                            &bias_of<E, double, false>};

  detail::shared_object held_;
  detail::encoding_policy<float> single_;
  detail::encoding_policy<double> double_;
  const extra_functions* extra_ = nullptr;
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ENCODING_ANY_ENCODING_HPP
