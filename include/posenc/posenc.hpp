// SPDX-License-Identifier: Apache-2.0
#ifndef POSENC_POSENC_HPP
#define POSENC_POSENC_HPP

// Everything but executors (posenc/core/eigen_executor.hpp, posenc/core/openmp_executor.hpp) and posenc/testing.

#include "version.hpp"

// positions
#include "core/as_view.hpp"
#include "core/dtype.hpp"
#include "core/eigen.hpp"
#include "core/error.hpp"
#include "core/executor.hpp"
#include "core/tensor_view.hpp"
#include "core/token_builders.hpp"
#include "core/tokens.hpp"

// ladder
#include "ladder/dialect.hpp"
#include "ladder/frequency_factors.hpp"
#include "ladder/frequency_ladder.hpp"
#include "ladder/llama3.hpp"
#include "ladder/ntk_aware.hpp"
#include "ladder/position_interpolation.hpp"
#include "ladder/rotary_dim.hpp"
#include "ladder/scaling.hpp"
#include "ladder/yarn.hpp"

// encoding
#include "encoding/add_positions.hpp"
#include "encoding/alibi.hpp"
#include "encoding/any_encoding.hpp"
#include "encoding/axial_rope.hpp"
#include "encoding/combine.hpp"
#include "encoding/concepts.hpp"
#include "encoding/convert_pairs.hpp"
#include "encoding/cos_sin.hpp"
#include "encoding/cos_sin_tables.hpp"
#include "encoding/learned.hpp"
#include "encoding/nope.hpp"
#include "encoding/per_head.hpp"
#include "encoding/query_temperature.hpp"
#include "encoding/rope.hpp"
#include "encoding/rotate.hpp"
#include "encoding/rotated.hpp"
#include "encoding/sinusoidal.hpp"
#include "encoding/t5_bucket.hpp"
#include "encoding/xpos.hpp"

// mask
#include "attention/mask/any_mask.hpp"
#include "attention/mask/dense_mask.hpp"
#include "attention/mask/mask_algebra.hpp"
#include "attention/mask/masks.hpp"

// attention
#include "attention/attention.hpp"
#include "attention/cached_attention.hpp"
#include "attention/kv_cache.hpp"
#include "attention/kv_pool.hpp"
#include "attention/kv_view.hpp"
#include "attention/merge.hpp"
#include "attention/options.hpp"
#include "attention/workspace.hpp"
#include "attention/workspace_size.hpp"

#endif  // POSENC_POSENC_HPP
