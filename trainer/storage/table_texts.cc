#include "trainer/storage/table_texts.h"

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/lower_extension.h"
#include "trainer/storage/arrow_module.h"

namespace ddp::train {

bool is_arrow_table(const std::string& path) {
  const std::string end = lower_extension(path);
  return end == ".parquet" || end == ".arrow" || end == ".feather";
}

void read_table_texts(const std::string& path, const std::string& column, const TakeText& take) {
  void* const entry = arrow_module_entry(kArrowTableEntry, path);
  if (entry == nullptr) {
    throw UserError(path +
                    ": this trainer was built without Arrow, which reads tables; "
                    "./scripts/setup.sh --object-stores, then build again");
  }
  reinterpret_cast<ArrowTableEntry>(entry)(path, column, take);
}

}  // namespace ddp::train
