// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_ATTENTION_MASK_ANY_MASK_HPP
#define POSENC_ATTENTION_MASK_ANY_MASK_HPP

#include <concepts>
#include <utility>

#include "../../core/shared_object.hpp"
#include "../policies.hpp"
#include "concepts.hpp"

namespace posenc::inline POSENC_ABI {

/// A mask chosen at run time. It holds a copy of any mask; copies share it. The kernel reaches the held mask as directly
/// as one named in the source.
class any_mask {
 public:
  static constexpr bool per_head = true;

  template <attention_mask M>
    requires(!std::same_as<M, any_mask>)
  any_mask(M mask)  // NOLINT(google-explicit-constructor)
      : held_(detail::shared_object::make<M>(std::move(mask))),
        functions_(&detail::mask_functions_of<M>),
        extra_(&extra_of<M>) {}

  bool visible(const token& q, const token& k) const { return extra_->visible(held_.get(), q, k); }
  visibility classify(const token_block& q, const token_block& k) const {
    return functions_->classify(held_.get(), q, k);
  }
  maybe_error check(const mask_use& use) const noexcept { return extra_->check(held_.get(), use); }

  detail::mask_policy erased() const noexcept { return {held_.get(), functions_}; }

 private:
  struct extra_functions {
    bool (*visible)(const void*, const token&, const token&);
    maybe_error (*check)(const void*, const mask_use&);
  };
  template <class M>
  static constexpr extra_functions extra_of{
      [](const void* m, const token& q, const token& k) -> bool { return static_cast<const M*>(m)->visible(q, k); },
      [](const void* m, const mask_use& use) -> maybe_error {
        return detail::check_mask(*static_cast<const M*>(m), use);
      }};

  detail::shared_object held_;
  const detail::mask_functions* functions_;
  const extra_functions* extra_;
};

}  // namespace posenc::inline POSENC_ABI

#endif  // POSENC_ATTENTION_MASK_ANY_MASK_HPP
