#include "trainer/app/data_facts.h"

#include "trainer/data/text_dataset.h"

namespace ddp::train {

DataFacts read_data_facts(const Config& config) {
  const TextDataset dataset(config.data);
  return {dataset.tokenizer().size(), dataset.training().size()};
}

}  // namespace ddp::train
