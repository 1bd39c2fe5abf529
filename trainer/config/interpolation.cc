#include "trainer/config/interpolation.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <ctime>

#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

class Resolver {
 public:
  explicit Resolver(const Node& root) : root_(root) {}

  Node resolve(const Node& node, const std::string& path) {
    if (node.is_interpolation()) return resolve_text(node, path);
    Node out = node;
    for (std::size_t i = 0; i < out.items.size(); ++i) {
      out.items[i] = resolve(node.items[i], fmt::format("{}[{}]", path, i));
    }
    for (std::size_t i = 0; i < out.entries.size(); ++i) {
      const std::string key = python_str(node.entries[i].key);
      out.entries[i].value = resolve(node.entries[i].value, path.empty() ? key : path + "." + key);
    }
    return out;
  }

 private:
  [[noreturn]] void fail(const Node& node, const std::string& path, const std::string& what) const {
    throw UserError(fmt::format("{}: {}: {}", node.place.str(), path, what));
  }

  Node resolve_text(const Node& node, const std::string& path) {
    constexpr std::size_t kLongestChain = 50;
    if (chain_.size() > kLongestChain)
      fail(node, path, "interpolations follow each other too deeply");
    for (const std::string& seen : chain_) {
      if (seen == path)
        fail(node, path, "Recursive interpolation detected: " + chain_text() + " -> " + path);
    }
    chain_.push_back(path);
    Node result = expand(node, path);
    chain_.pop_back();
    result.place = node.place;
    return result;
  }

  Node expand(const Node& node, const std::string& path) {
    const std::string& text = node.text;
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t open = text.find("${", at);
      out += text.substr(at, open == std::string::npos ? open : open - at);
      if (open == std::string::npos) break;
      const std::size_t close = text.find('}', open);
      if (close == std::string::npos)
        fail(node, path, fmt::format("'{}' has no closing brace; add }}", text));
      Node value = reference(node, path, text.substr(open + 2, close - open - 2));
      if (open == 0 && close + 1 == text.size()) return value;
      out += python_str(value);
      at = close + 1;
    }
    return Node::of(out);
  }

  Node reference(const Node& node, const std::string& path, const std::string& inside) {
    const std::size_t colon = inside.find(':');
    if (colon != std::string::npos)
      return call(node, path, inside.substr(0, colon), inside.substr(colon + 1));
    const Node* target = &root_;
    for (const std::string& part : split_path(inside)) {
      target = target->find(part);
      if (target == nullptr)
        fail(node, path, fmt::format("Interpolation key '{}' not found", inside));
    }
    if (target->is_missing())
      fail(node, path, fmt::format("MissingMandatoryValue: '{}' is ???; give it a value", inside));
    return resolve(*target, inside);
  }

  Node call(const Node& node, const std::string& path, const std::string& name,
            const std::string& arguments) {
    if (name == "now") return Node::of(now(arguments));
    if (name == "oc.env") return environment(node, path, arguments);
    fail(node, path,
         fmt::format("Unsupported interpolation type {}; known are oc.env and now", name));
  }

  Node environment(const Node& node, const std::string& path, const std::string& arguments) {
    const std::size_t comma = arguments.find(',');
    const std::string name = arguments.substr(0, comma);
    if (const char* value = std::getenv(name.c_str())) return Node::of(std::string(value));
    if (comma == std::string::npos)
      fail(node, path, fmt::format("Environment variable '{}' not found", name));
    return Node::of(arguments.substr(comma + 1));
  }

  static std::string now(const std::string& format) {
    const std::time_t seconds = std::time(nullptr);
    std::tm local{};
    localtime_r(&seconds, &local);
    std::array<char, 256> text{};
    return std::string(text.data(),
                       std::strftime(text.data(), text.size(), format.c_str(), &local));
  }

  std::string chain_text() const {
    std::string text;
    for (const std::string& key : chain_) text += (text.empty() ? "" : " -> ") + key;
    return text;
  }

  const Node& root_;
  std::vector<std::string> chain_;
};

}  // namespace

void resolve_interpolations(Node& root) { root = Resolver(root).resolve(root, ""); }

}  // namespace ddp::train
