#include "trainer/metrics/metric_recorder.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "trainer/metrics/text.h"

namespace ddp::train {

struct MetricRecorder::State {
  explicit State(std::vector<std::unique_ptr<MetricSink>> given) : sinks(std::move(given)) {}

  const std::vector<std::unique_ptr<MetricSink>> sinks;  // the thread's alone
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> waiting;
  bool writing = false;
  bool stopping = false;
  bool ended = false;
  uint64_t written = 0;
  int64_t lost = 0;  // records since that was last said
  std::set<const MetricSink*> failed;
  std::vector<std::string> troubles;
  std::thread thread;

  bool idle() const { return waiting.empty() && !writing; }
  void work();
  void write_to_all(const Job& job, std::unique_lock<std::mutex>& lock);
  bool flush();
};

void MetricRecorder::State::work() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return stopping || !waiting.empty(); });
    if (stopping) break;
    const Job job = std::move(waiting.front());
    waiting.pop_front();
    write_to_all(job, lock);
    ++written;
    changed.notify_all();
  }
  ended = true;
  changed.notify_all();
}

void MetricRecorder::State::write_to_all(const Job& job, std::unique_lock<std::mutex>& lock) {
  writing = true;
  lock.unlock();
  for (const auto& sink : sinks) {
    try {
      job(*sink);
    } catch (const std::exception& error) {
      const std::scoped_lock again(mutex);
      if (failed.insert(sink.get()).second) troubles.emplace_back(error.what());
    }
  }
  lock.lock();
  writing = false;
}

bool MetricRecorder::State::flush() {
  constexpr std::chrono::seconds kPatience{2};
  std::unique_lock lock(mutex);
  while (!idle()) {
    const uint64_t before = written;
    const bool moved =
        changed.wait_for(lock, kPatience, [&] { return idle() || written != before; });
    if (!moved) return false;
  }
  return true;
}

MetricRecorder::MetricRecorder(std::vector<std::unique_ptr<MetricSink>> sinks)
    : state_(sinks.empty() ? nullptr : std::make_shared<State>(std::move(sinks))) {}

MetricRecorder::~MetricRecorder() {
  if (!state_) return;
  state_->flush();
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  if (!state_->thread.joinable()) return;
  // Nobody can call a thread back from a write that never returns; the end of the process does.
  const bool ended = state_->changed.wait_for(lock, std::chrono::milliseconds(200),
                                              [this] { return state_->ended; });
  lock.unlock();
  ended ? state_->thread.join() : state_->thread.detach();
}

void MetricRecorder::add(Job job, bool may_be_lost) {
  if (!state_) return;
  const std::scoped_lock lock(state_->mutex);
  if (may_be_lost && state_->waiting.size() >= kMostWaiting) {
    ++state_->lost;
    return;
  }
  state_->waiting.push_back(std::move(job));
  if (!state_->thread.joinable()) state_->thread = std::thread([state = state_] { state->work(); });
  state_->changed.notify_all();
}

void MetricRecorder::begin_after(int64_t step) {
  add([step](MetricSink& sink) { sink.begin_after(step); }, /*may_be_lost=*/false);
}

void MetricRecorder::write(MetricRecord record) {
  add([record = std::move(record)](MetricSink& sink) { sink.write(record); });
}

void MetricRecorder::write_text(TextRecord record) {
  add([record = std::move(record)](MetricSink& sink) { sink.write_text(record); });
}

void MetricRecorder::write_histogram(HistogramRecord record) {
  add([record = std::move(record)](MetricSink& sink) { sink.write_histogram(record); });
}

void MetricRecorder::write_confusion(ConfusionRecord record) {
  add([record = std::move(record)](MetricSink& sink) { sink.write_confusion(record); });
}

bool MetricRecorder::flush() { return !state_ || state_->flush(); }

std::vector<std::string> MetricRecorder::take_troubles() {
  if (!state_) return {};
  const std::scoped_lock lock(state_->mutex);
  auto troubles = std::exchange(state_->troubles, {});
  if (const int64_t lost = std::exchange(state_->lost, 0); lost > 0)
    troubles.push_back(fmt::format("{} lost: the disk does not take them in time",
                                   counted(lost, "metric record")));
  return troubles;
}

}  // namespace ddp::train
