// Finds torch on this machine, and among the programs of an installation the one that fits it.
//
// A program is linked with one minor version of torch, so an installation holds a folder for each:
// ddp_run/torch-2.15/trainer, in PREFIX/lib or, from a wheel, in site-packages. This only looks at
// files: it starts no Python and loads no library.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ddp::launch {

struct TorchPlaces {
  std::string own_folder;                // of the running program: PREFIX/bin
  std::string torch_root;                // TORCH_ROOT: this torch and no other
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

/// The installed program `name` for a torch of this machine: the first one that fits, in
/// TORCH_ROOT, else beside the installation, in PREFIX, PYTHONPATH and the prefixes. nullopt if
/// own_folder is not part of an installation with such a program, as in a build tree.
std::optional<TorchProgram> find_torch_program(const std::string& name, const TorchPlaces& places);

}  // namespace ddp::launch
