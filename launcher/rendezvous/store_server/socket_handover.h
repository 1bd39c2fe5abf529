// The protocol of ddp-run and ddp-store over a pair of Unix sockets: "serve this listening socket
// from now on" and "served". End-of-file: the other side is gone.
#pragma once

namespace ddp::launch {

/// ddp-run's side. False if the other side is gone.
bool hand_over_socket(int control, int listening_socket);
/// Sockets reported as served since the last call; never blocks. `ended`: no more reports can come.
int take_served_reports(int control, bool& ended);

/// ddp-store's side. Blocks; -1 at end-of-file (errno 0) or on an error.
int receive_socket(int control);
void report_served(int control);

}  // namespace ddp::launch
