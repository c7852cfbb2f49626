// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ENCODING_PLACE_LIST_HPP
#define POSENC_ENCODING_PLACE_LIST_HPP

#include "concepts.hpp"

/// For encodings that are made of other encodings: which places they act on, and hooks that exist only if they do. A hook
/// that is there but not listed would be an error, so each comes from a base class that is empty otherwise.
namespace posenc::inline POSENC_ABI::detail {

template <class Joined, class... Lists>
struct join_places {
  using type = Joined;
};
template <class... A, class... B, class... Rest>
struct join_places<places<A...>, places<B...>, Rest...> : join_places<places<A..., B...>, Rest...> {};

template <bool Listed, class Place>
struct place_if {
  using type = places<Place>;
};
template <class Place>
struct place_if<false, Place> {
  using type = places<>;
};

template <bool Inputs, bool QueriesKeys, bool Scores>
using places_where = typename join_places<places<>, typename place_if<Inputs, on_inputs>::type,
                                          typename place_if<QueriesKeys, on_queries_keys>::type,
                                          typename place_if<Scores, on_scores>::type>::type;

/// `bias` of the encoding that Wrapper::of_query_head(head) returns.
template <class Wrapper, bool Listed>
struct bias_of_one {};
template <class Wrapper>
struct bias_of_one<Wrapper, true> {
  template <class Keys>
  typename Keys::value_type bias(const Keys& keys, index_t head) const {
    return static_cast<const Wrapper*>(this)->of_query_head(head).bias(keys, head);
  }
};

/// `largest_bias` and `bias_axis` of the one encoding, if it has them.
template <class Wrapper, bool Bounded>
struct bound_of_one {};
template <class Wrapper>
struct bound_of_one<Wrapper, true> {
  double largest_bias(double low, double high, index_t head) const {
    return static_cast<const Wrapper*>(this)->of_query_head(head).largest_bias(low, high, head);
  }
  index_t bias_axis() const { return static_cast<const Wrapper*>(this)->of_query_head(0).bias_axis(); }
};

template <class E>
inline constexpr bool bounds_its_biases = acts_on<E, on_scores> && bounded_bias<E>;

}  // namespace posenc::inline POSENC_ABI::detail

#endif  // POSENC_ENCODING_PLACE_LIST_HPP
