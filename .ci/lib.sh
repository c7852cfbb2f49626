# SPDX-License-Identifier: Apache-2.0
# Functions that the scripts of this repository share: finding and installing what is missing, building, counting results.
# Sourced by bash scripts, which set `root` (the repository) before.
# shellcheck shell=bash disable=SC2154
# Nothing here waits for input: standard input is closed, sudo is asked never to prompt.
exec </dev/null

say() { printf 'posenc: %s\n' "$*"; }
fail() {
  printf 'posenc: %s\n' "$*" >&2
  exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# ------------------------------------------------------------------------------------------------------------- packages
# Prints the prefix of a command that may install packages: nothing for root, sudo where it asks no password.
# Returns 1 where neither is at hand.
privilege() {
  if [ "$(id -u)" = 0 ]; then
    echo env
  elif have sudo && sudo -n true >/dev/null 2>&1; then
    echo sudo -n env
  else
    return 1
  fi
}

# install_packages <Debian package>...: installs them or says why not. Package lists are fetched only when needed.
install_packages() {
  local as
  if ! have apt-get; then
    say "cannot install packages: there is no apt-get. Install by hand what these Debian packages hold: $*" >&2
    return 1
  fi
  if ! as=$(privilege); then
    say "cannot install packages: this is not root, and there is no sudo without a password. As root:" >&2
    say "  apt-get update && apt-get install $*" >&2
    return 1
  fi
  local options=(-y -q --no-install-recommends -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2)
  local install update output
  # shellcheck disable=SC2206  # $as is a list of words
  install=($as DEBIAN_FRONTEND=noninteractive apt-get install "${options[@]}" "$@")
  # shellcheck disable=SC2206
  update=($as DEBIAN_FRONTEND=noninteractive apt-get update -q)
  say "installing $*"
  if "${install[@]}" >/dev/null 2>&1; then return 0; fi
  say "fetching the package lists first (apt-get update)"
  output=$("${update[@]}" 2>&1)
  if output+=$("${install[@]}" 2>&1); then return 0; fi
  printf '%s\n' "$output" | tail -n 20 >&2
  say "apt-get could not install: $*" >&2
  return 1
}

# ------------------------------------------------------------------------------------------------------------ the tools
# The compiler that CMake would choose.
compiler() {
  if [ -n "${CXX:-}" ]; then
    echo "$CXX"
  elif have c++; then
    echo c++
  elif have g++; then
    echo g++
  elif have clang++; then
    echo clang++
  else
    return 1
  fi
}

# True if the CMake at hand is 3.21 or later.
cmake_is_good() {
  local version
  version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
  # shellcheck disable=SC2086
  set -- $version
  [ $# = 2 ] && { [ "$1" -gt 3 ] || { [ "$1" = 3 ] && [ "$2" -ge 21 ]; }; }
}

# Finds compiler, CMake and a build tool, installs what is missing, or ends the script with a clear text.
need_tools() {
  local missing=()
  compiler >/dev/null || missing+=(g++)
  have cmake || missing+=(cmake)
  have ninja || have make || missing+=(ninja-build)
  if [ ${#missing[@]} != 0 ]; then
    say "missing: ${missing[*]}"
    install_packages "${missing[@]}" || exit 1
  fi
  cmake_is_good || fail "CMake 3.21 or later is needed, this is: $(cmake --version 2>&1 | head -n 1)"
  local cxx source
  cxx=$(compiler) || fail "there is no C++ compiler; set CXX or install g++ 12 or clang 14, or later"
  source='#include <concepts>
#include <numbers>
#include <span>
struct options { int a = 1; double b = std::numbers::pi; };
template <std::integral T> T f(std::span<T> x) { return x[0]; }
constexpr options o{.b = 2};
int main() { int i[1] = {0}; return f(std::span<int>(i)); }'
  # shellcheck disable=SC2086  # CXX may hold options
  printf '%s\n' "$source" | $cxx -std=c++20 -x c++ -fsyntax-only - >/dev/null 2>&1 ||
    fail "the compiler '$cxx' does not compile C++20 (needed: GCC 12, Clang 14, or later); set CXX to another"
}

# missing_libraries <name>...: prints the Debian packages of those of Eigen3, GTest, nlohmann_json, benchmark that CMake
# does not find.
missing_libraries() {
  local probe
  probe=$(mktemp -d)
  {
    echo 'cmake_minimum_required(VERSION 3.21)'
    echo 'project(probe LANGUAGES CXX)'
    echo 'find_package(Threads REQUIRED)'
    local name
    for name in "$@"; do
      echo "find_package($name QUIET)"
      if [ "$name" = GTest ]; then echo 'if(NOT TARGET GTest::gmock)'; else echo "if(NOT ${name}_FOUND)"; fi
      echo "  message(STATUS \"lacking: $name\")"
      echo 'endif()'
    done
  } >"$probe/CMakeLists.txt"
  local -A package=([Eigen3]=libeigen3-dev [GTest]=libgmock-dev [nlohmann_json]=nlohmann-json3-dev
    [benchmark]=libbenchmark-dev)
  local output
  # shellcheck disable=SC2046  # generator prints words
  if ! output=$(cmake -S "$probe" -B "$probe/build" $(generator) 2>&1); then
    rm -rf "$probe"
    printf '%s\n' "$output" >&2
    return 1
  fi
  rm -rf "$probe"
  printf '%s\n' "$output" | sed -n 's/^-- lacking: //p' | while read -r name; do echo "${package[$name]}"; done |
    paste -s -d ' '
}

# need_libraries <name>...: installs what is missing of them, or ends the script with a clear text.
need_libraries() {
  local packages
  packages=$(missing_libraries "$@") || fail "CMake cannot configure a trivial project; see above"
  [ -n "$packages" ] || return 0
  say "missing: $packages"
  # shellcheck disable=SC2086
  install_packages $packages || exit 1
  packages=$(missing_libraries "$@")
  [ -z "$packages" ] || fail "still not found by CMake after installing: $packages"
}

# ----------------------------------------------------------------------------------------------------------- the build
# -G Ninja where it is there, CMake's default elsewhere. Printed as words.
generator() {
  if have ninja; then echo -G Ninja; fi
}

# How many compilers at once: one a core, but each may want 1.5 GB.
parallel_jobs() {
  if [ -n "${CMAKE_BUILD_PARALLEL_LEVEL:-}" ]; then
    echo "$CMAKE_BUILD_PARALLEL_LEVEL"
    return
  fi
  local cores memory
  cores=$(nproc 2>/dev/null || echo 1)
  memory=$(awk '/^MemAvailable:/ { print int($2 / 1536 / 1024) }' /proc/meminfo 2>/dev/null)
  [ -n "$memory" ] || memory=$cores
  if [ "$memory" -lt 1 ]; then memory=1; fi
  if [ "$memory" -lt "$cores" ]; then echo "$memory"; else echo "$cores"; fi
}

# configure <build folder> <CMake option>...: a folder that was made elsewhere or with a build tool that is gone is made
# anew.
configure() {
  local build=$1 home tool
  shift
  if [ -f "$build/CMakeCache.txt" ]; then
    home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$build/CMakeCache.txt")
    tool=$(sed -n 's/^CMAKE_MAKE_PROGRAM:[A-Z]*=//p' "$build/CMakeCache.txt")
    if [ "$home" != "$root" ] || ! have "$tool"; then
      say "making $build anew"
      rm -rf "$build"
    fi
  fi
  local options=()
  if [ ! -f "$build/CMakeCache.txt" ]; then
    # shellcheck disable=SC2207
    options+=($(generator))
    if have ccache; then options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  fi
  # What ccache must not mind when a header is precompiled.
  export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}
  cmake -S "$root" -B "$build" "${options[@]}" "$@"
}

# ---------------------------------------------------------------------------------------------------------- the counts
# run_ctest <build folder> <ctest option>...: runs the tests and leaves the counts in passed, failed and skipped.
# A GoogleTest program counts as its cases, any other test as one. A program that crashed or ran out of time counts as one
# failure. Returns what ctest returned.
run_ctest() {
  local build=$1 report="$1/ctest.xml" status=0 name state cases bad missed
  shift
  rm -rf "$build/results" "$report" "$report.list"
  ctest --test-dir "$build" --output-on-failure --no-tests=error --timeout 900 -j "$(parallel_jobs)" --output-junit "$report" \
    "$@" || status=$?
  passed=0 failed=0 skipped=0
  sed -n 's/.*<testcase name="\([^"]*\)".* status="\([a-z]*\)".*/\1 \2/p' "$report" >"$report.list" 2>/dev/null
  while read -r name state; do
    case $state in
      run | fail)
        if [ -f "$build/results/$name.xml" ]; then
          cases=$(suites_attribute tests "$build/results/$name.xml")
          bad=$(suites_attribute failures "$build/results/$name.xml")
          missed=$(($(suites_attribute disabled "$build/results/$name.xml") + $(grep -c '<skipped' "$build/results/$name.xml")))
          if [ "$state" = fail ] && [ "$bad" = 0 ]; then bad=1; fi
          passed=$((passed + cases - bad - missed)) failed=$((failed + bad)) skipped=$((skipped + missed))
        elif [ "$state" = run ]; then
          passed=$((passed + 1))
        else
          failed=$((failed + 1))
        fi
        ;;
      notrun) failed=$((failed + 1)) ;;
      *) skipped=$((skipped + 1)) ;;
    esac
  done <"$report.list"
  if [ "$status" != 0 ] && [ "$failed" = 0 ]; then failed=1; fi
  return "$status"
}

# The number that attribute $1 has in the first element <testsuites> of file $2.
suites_attribute() {
  local value
  value=$(sed -n "s/.*<testsuites .*\b$1=\"\([0-9]*\)\".*/\1/p" "$2" | head -n 1)
  echo "${value:-0}"
}
