// Finds torch on this machine and the program of an installation that fits it.
//
// A program is linked with one minor version of torch, so an installation has a folder for each:
// ddp_run/torch-2.15/trainer, in PREFIX/lib or, from a wheel, in site-packages. Only looks at
// files: starts no Python and loads no library.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ddp::launch {

struct TorchPlaces {
  std::string own_folder;                // of the running program: PREFIX/bin
  std::string torch_root;                // TORCH_ROOT: use this torch and no other
  std::vector<std::string> python_path;  // PYTHONPATH
  std::vector<std::string> prefixes;     // of Python environments besides PREFIX, best first

  static TorchPlaces of_this_process();
};

struct TorchProgram {
  std::string path;  // empty: no torch on this machine fits
  /// For LD_LIBRARY_PATH, separated by colons; empty if the program's own RUNPATH leads to torch.
  std::string library_folders;
  std::string why_not;  // if none fits: what was found and what to install
};

/// Returns the installed program `name` for the first torch that fits, searching TORCH_ROOT or else
/// the installation's own folder, PREFIX, PYTHONPATH and the prefixes. Returns nullopt if
/// own_folder is not part of an installation with such a program, as in a build tree.
std::optional<TorchProgram> find_torch_program(const std::string& name, const TorchPlaces& places);

}  // namespace ddp::launch
