#include "launcher/rendezvous/rendezvous.h"

#include <utility>

namespace ddp::launch {

JobNews make_news(JobNews::Kind kind, std::string text) {
  JobNews news;
  news.kind = kind;
  news.text = std::move(text);
  return news;
}

JobNews failed_end(const std::string& why) {
  JobNews news = make_news(JobNews::Kind::kEnd, "");
  news.failures = {job_failure(why)};
  news.outcome = Outcome::kFailed;
  return news;
}

std::optional<JobNews> take_oldest(std::deque<JobNews>& queue) {
  if (queue.empty()) return std::nullopt;
  JobNews news = std::move(queue.front());
  queue.pop_front();
  return news;
}

JobNews judge_own_end(const RestartRules& rules, RestartTally& tally,
                      std::vector<ProcessFailure> failures) {
  JobNews news = make_news(JobNews::Kind::kEnd, "");
  news.failures = std::move(failures);
  if (news.failures.empty()) return news;
  tally.add(rules, round_end(news.failures.front()));
  news.verdict = judge_restart(rules, tally);
  news.outcome = outcome_of(rules, news.failures);
  if (!news.verdict.restart) return news;
  news.kind = JobNews::Kind::kRestart;
  news.text = restart_text(news.failures.front(), news.verdict, rules.max_restarts);
  return news;
}

}  // namespace ddp::launch
