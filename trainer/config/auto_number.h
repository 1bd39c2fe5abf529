// A number that the program may choose itself.
#pragma once

namespace ddp::train {

/// `auto`, or a number of the user's; 0 is off.
struct AutoNumber {
  bool automatic = true;
  double value = 0.0;  ///< Only when not automatic.
};

}  // namespace ddp::train
