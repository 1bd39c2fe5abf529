// What ddp-run and ddp-store say to each other over a pair of Unix sockets: "serve this listening
// socket from now on", and "served". End-of-file means that the other one is gone.
#pragma once

namespace ddp::launch {

/// ddp-run's side. False when the other one is gone.
bool hand_over_socket(int control, int listening_socket);
/// How many sockets were reported as served since the last call; never waits. `ended`: no further
/// report can come.
int take_served_reports(int control, bool& ended);

/// ddp-store's side. Waits; -1 at end-of-file or on an error (errno then is not 0).
int receive_socket(int control);
void report_served(int control);

}  // namespace ddp::launch
