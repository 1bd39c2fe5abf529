// The files that an export takes from the pretrained model that its run started from.
#pragma once

#include "trainer/interop/export_model.h"

namespace ddp::train {

/// Whether the model has a row of weights for each position, and so no context beyond them.
bool has_position_table(const Config& config);

/// `own`: the files that describe the tokenizer of a model without a base. Returns them with the
/// base's in their place; a chat template that is not the base's stays, with its special tokens.
TextFiles with_base_tokenizer(TextFiles own, const ExportedModel& model);

/// `own`: config.json and generation_config.json. Returns the base's with the sizes, positions and
/// labels that `own` has, and the token that ends an answer, if the run was trained on chats.
/// Throws UserError: the base is of other sizes.
TextFiles with_base_config(TextFiles own, const ExportedModel& model);

}  // namespace ddp::train
