#include "trainer/app/data_facts.h"

#include "trainer/data/char_dataset.h"

namespace ddp::train {

DataFacts read_data_facts(const Config& config) {
  const CharDataset dataset(config.data);
  return {dataset.vocabulary().size(), dataset.training().size()};
}

}  // namespace ddp::train
