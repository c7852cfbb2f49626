#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds posenc's tests and runs them:  bash tests/run_tests.sh [option of ctest]...
# For example `bash tests/run_tests.sh -L unit` or `-R rope`. Installs what is missing where it can (Debian).
# The build is in build/tests. CXX chooses the compiler, POSENC_CMAKE_OPTIONS holds further options for CMake.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/.ci/lib.sh"
case ${1:-} in
  -h | --help)
    sed -n '3,5s/^# //p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
esac

need_tools
need_libraries Eigen3 GTest nlohmann_json

build=$root/build/tests
options=(-DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG" -DPOSENC_NATIVE=ON -DPOSENC_TESTS=ON -DPOSENC_EXAMPLES=ON -DPOSENC_BENCH=OFF)
# shellcheck disable=SC2206
options+=(${POSENC_CMAKE_OPTIONS:-})
say "configuring $build"
mkdir -p "$root/build"
configure "$build" "${options[@]}" >"$build.log" 2>&1 || {
  cat "$build.log" >&2
  fail "CMake could not configure the tests"
}
say "building with $(parallel_jobs) jobs"
cmake --build "$build" -j "$(parallel_jobs)" || fail "the tests do not build; see above"
say "running"
status=0
run_ctest "$build" "$@" || status=$?
echo "tests: $passed passed, $failed failed, $skipped skipped"
exit "$status"
