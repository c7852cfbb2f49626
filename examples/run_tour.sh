#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the tour and runs it:  bash examples/run_tour.sh [option of the tour]...
# `--help` lists the tour's options. Installs what is missing where it can (Debian). The build is in build/tour. CXX chooses
# the compiler, POSENC_CMAKE_OPTIONS holds further options for CMake.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/.ci/lib.sh"

need_tools
need_libraries Eigen3

build=$root/build/tour
mkdir -p "$root/build"
say "building the tour in $build" >&2
# shellcheck disable=SC2086
{
  configure "$build" -DCMAKE_BUILD_TYPE=Release -DPOSENC_NATIVE=ON -DPOSENC_EXAMPLES=ON -DPOSENC_TESTS=OFF \
    -DPOSENC_BENCH=OFF ${POSENC_CMAKE_OPTIONS:-} &&
    cmake --build "$build" --target tour -j "$(parallel_jobs)"
} >"$build.log" 2>&1 || {
  cat "$build.log" >&2
  fail "the tour does not build; see above"
}
exec "$build/examples/tour" "$@"
