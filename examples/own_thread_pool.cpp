// SPDX-License-Identifier: Apache-2.0
// Attention on threads of one's own. An executor is any object with parallel_for(n, f).
#include <posenc/posenc.hpp>

#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

class thread_pool {
 public:
  explicit thread_pool(int threads) : line_(threads) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });  // the caller is the first one
  }
  ~thread_pool() {
    task_ = nullptr;
    line_.arrive_and_wait();
    for (std::thread& worker : workers_) worker.join();
  }

  // Runs f(0), ..., f(n - 1) and returns when all are done. One call at a time.
  template <class F>
  void parallel_for(posenc::index_t n, F&& f) {
    count_ = n, next_ = 0, task_ = std::ref(f);
    line_.arrive_and_wait();  // all begin
    take_tasks();
    line_.arrive_and_wait();  // all are done
  }

 private:
  void take_tasks() {
    for (posenc::index_t i = next_++; i < count_; i = next_++) task_(i);
  }
  void work() {
    for (line_.arrive_and_wait(); task_; line_.arrive_and_wait()) take_tasks(), line_.arrive_and_wait();
  }

  std::barrier<> line_;
  std::vector<std::thread> workers_;
  std::function<void(posenc::index_t)> task_;
  posenc::index_t count_ = 0;
  std::atomic<posenc::index_t> next_{0};
};

int main() {
  using namespace posenc;
  constexpr index_t tokens = 500, heads = 4, head_dim = 64;
  std::vector<float> x(tokens * heads * head_dim), serial(x.size()), parallel(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(0.7f * static_cast<float>(i));
  const auto view = [](std::vector<float>& data) { return view_thd(data.data(), tokens, heads, head_dim); };

  thread_pool pool(3);
  attention(view(x), view(x), view(x), view(serial), token_range(tokens), alibi(heads), causal{});
  attention(view(x), view(x), view(x), view(parallel), token_range(tokens), alibi(heads), causal{}, {}, pool);
  std::printf("3 threads and 1 thread: %s\n", serial == parallel ? "the same bits" : "different numbers");
}
