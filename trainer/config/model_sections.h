// Sections of the configuration that models add to those in model_config.h.
#pragma once

#include <any>
#include <map>
#include <typeindex>

namespace ddp::train {

/// One value of each added type. Copied with the Config that holds it.
class ModelSections {
 public:
  /// Adds a section of type T, with its defaults, to every Config created from now on. Not
  /// thread-safe: call it at the start of the program.
  template <class T>
  static void add() {
    defaults().insert_or_assign(typeid(T), T{});
  }

  /// Throws std::out_of_range if T was not added.
  template <class T>
  T& of() {
    return std::any_cast<T&>(sections_.at(typeid(T)));
  }
  template <class T>
  const T& of() const {
    return std::any_cast<const T&>(sections_.at(typeid(T)));
  }

 private:
  using Sections = std::map<std::type_index, std::any>;

  static Sections& defaults() {
    static Sections all;
    return all;
  }

  Sections sections_ = defaults();
};

}  // namespace ddp::train
